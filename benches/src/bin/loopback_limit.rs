//! placeholder
fn main() { 
    use ferroce_benches::bare::*;
    for (m, mtu, out) in [(1<<20, 4096, 128), (65536, 4096, 128), (4096, 4096, 16), (65536,1024,128), (4096, 4096, 32)] {
        print!("{m}/{mtu}/{out}: ");
        let ws=[100_000,150_000,200_000, 300_000,600_000,1_200_000];
        let mut vs=vec![vec![];6];
        for _ in 0..7 { for (i,w) in ws.iter().enumerate() { loop { let t=stream(&Stream{message_bytes:m, mtu_bytes:mtu, outstanding:out, seconds:0.1, window_bytes: *w, ..Default::default()}).unwrap();
           if t.contention<0.02 { vs[i].push(t.gbps); break } std::thread::sleep(std::time::Duration::from_millis(100));} } }
        for (i,v) in vs.iter_mut().enumerate() { v.sort_by(f64::total_cmp); print!(" w{} {:.1} ({:.1})", ws[i]/1000, v[3], v[6]); }
    println!(); }
}
