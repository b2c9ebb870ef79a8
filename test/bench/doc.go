// Package bench measures a whole node from outside: what a client of CRI and a client of the Kubernetes API see. Run it
// with `make bench` on a quiet machine, and compare only figures of one run.
//
// BenchmarkRuntimes needs a peer: Debian's containerd, with its runc and CNI plugins, which `make bench` installs. Both run at the same time and are
// measured in turns.
//
// BenchmarkPull pulls an image of some hundred megabytes with both, in turns.
//
// BenchmarkPodWithClaim and, with MONOPOD_BENCH_LONG=1, BenchmarkThousandClaims, BenchmarkClaimDisk, BenchmarkFullPods and BenchmarkIdleClaims are about claims (docs/SPEED.md).
//
// Figures: pod-up is RunPodSandbox + CreateContainer + StartContainer, pod-down is stop and remove of both;
// create-to-running is from a pod's POST until a watch shows it Running; delete-to-gone until the watch shows it deleted;
// node-ready is from the start of `monopod up` with empty directories until the Node is Ready. Times are medians, in
// milliseconds; memory is proportional set size in kB.
package bench
