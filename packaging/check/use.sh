#!/usr/bin/env bash
# What each package is tried with, in a root of its own: perftest, the demo, a test in Python. Prints how long
# after BEGUN, a time in seconds, perftest was done: use.sh BEGUN.
set -euo pipefail
cd /tmp

! command -v cargo cc gcc >/dev/null
timeout 60 ferroce run -- ib_write_bw -n 1000 >server.txt 2>&1 &
server=$!
for _ in $(seq 100); do
    ! ferroce run -- ib_write_bw -n 1000 127.0.0.1 >client.txt 2>&1 || break
    sleep 0.1
done
wait $server
grep -q '^ 65536 ' client.txt || { cat client.txt; exit 1; }
python3 -c "print(f'from the package to the end of ib_write_bw: {$EPOCHREALTIME - $1:.1f} s')"

ferroce --version
ferroce demo --loss 0.5% --blackout 50ms >demo.txt 2>&1 || { cat demo.txt; exit 1; }
ferroce run -- python3 -m pytest -q -p no:cacheprovider test_verbs.py
