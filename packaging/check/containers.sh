#!/usr/bin/env bash
# Does what docs/ci.md says of containers, with Docker or Podman, and with the script of its Kubernetes job:
# containers.sh PACKAGES. Without either of them, says so and does nothing.
set -euo pipefail

packages=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
version=$("$here/../../release" --version)
image=ferroce:$version
work=$(mktemp -d)
# Names of containers and of a network that nobody else has.
tag=ferroce-check-$$
options=()

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    engine=(docker)
    store=docker-daemon:
elif command -v podman >/dev/null; then
    engine=(podman)
    store=containers-storage:localhost/
    # Debian's crun refuses machines with both versions of cgroups.
    ! command -v runc >/dev/null || engine+=(--runtime runc)
    # Podman asks for more than some machines let it have.
    options=(--ulimit nofile=4096:4096 --ulimit nproc=4096:4096)
else
    echo "skipped: the recipes for containers (neither Docker nor Podman is installed)"
    exit
fi

clean_up() {
    "${engine[@]}" rm -f "$tag-0" "$tag-1" >/dev/null 2>&1 || true
    "${engine[@]}" network rm "$tag" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean_up EXIT

run() {
    timeout 120 "${engine[@]}" run --rm "${options[@]}" "$@"
}

skopeo copy -q "oci-archive:$packages/ferroce-$version-image.tar" "$store$image"
run "$image" demo >"$work/demo"
cp "$here/test_verbs.py" "$work"
run -v "$work:/work" -w /work "$image" run -- python3 -m pytest -q -p no:cacheprovider
echo "container: demo and pytest"

run -d --name "$tag-0" --entrypoint sleep "$image" infinity >/dev/null
"${engine[@]}" exec -d "$tag-0" ferroce run -- ib_write_bw >/dev/null
until "${engine[@]}" exec "$tag-0" ferroce run -- ib_write_bw 127.0.0.1 >"$work/client" 2>&1; do
    ((SECONDS < 60)) || { cat "$work/client"; exit 1; }
    sleep 0.2
done
grep -q '^ 65536 ' "$work/client"
"${engine[@]}" kill "$tag-0" >/dev/null
echo "container: two processes"

# The pods of the job, one container each.
awk '/^ *args:/ { args = 1 } args' "$here/../../docs/ci.md" |
    awk '/^ *- \|/ { script = 1; next } /^```/ { exit } script' >"$work/job.sh"
sed -i "s/rdma-0\.rdma/$tag-0/" "$work/job.sh"
grep -q JOB_COMPLETION_INDEX "$work/job.sh"
"${engine[@]}" network create "$tag" >/dev/null
pod() {
    run --name "$tag-$1" --network "$tag" -e "JOB_COMPLETION_INDEX=$1" --entrypoint sh "$image" \
        -ec "$(cat "$work/job.sh")" >"$work/pod-$1" 2>&1
}
pod 0 &
until "${engine[@]}" exec "$tag-0" true 2>/dev/null; do
    kill -0 $! || { cat "$work/pod-0"; exit 1; }
    sleep 0.2
done
pod 1 || { cat "$work/pod-1"; exit 1; }
wait $!
grep -q '^ 65536 ' "$work/pod-1"
echo "containers: two pods of the job"
