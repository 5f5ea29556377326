//! placeholder
fn main() { 
    use ferroce_benches::bare::*;
    for (m, mtu, out) in [(1<<20, 4096, 128), (65536, 4096, 128), (4096, 4096, 16), (1<<20,1024,128), (65536,1024,128), (4096,1024,16)] {
        let mut v: Vec<f64> = (0..3).map(|_| stream(&Stream{message_bytes:m, mtu_bytes:mtu, outstanding:out, seconds:0.5, ..Default::default()}).unwrap().gbps).collect();
        v.sort_by(f64::total_cmp);
        println!("{m} {mtu} {v:?}");
    }
    println!("{:?}", ping_pong(&PingPong::default()).unwrap());
}
