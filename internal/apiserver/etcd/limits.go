package etcd

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// limits are what a quota means in bytes. What is in use is what objects, their old revisions and the tables of both take; the file
// has free pages besides, which are used again before it grows.
//
//	0 ------------- pressure ------- create -- update ------------ file
//	  revisions are   old ones are   no new    no update that     etcd itself
//	  kept their time dropped early  objects   grows an object    refuses all writes
type limits struct {
	// pressure is the use from which on old revisions are dropped before their time, each time that another step is in use.
	pressure, step int64
	// create is the quota: no object is made beyond it.
	create int64
	// update is how far updates may go, because it takes updates to delete: finalizers are removed, and pods are told to end, by them.
	update int64
	// file is etcd's own bound, which it holds against the size of its file. It refuses every write but deletions beyond it, which
	// nobody should ever see.
	file int64
	// free is the least room in the file for which it is written anew.
	free int64
}

const (
	// cheapUse is what may be in use when the file is written anew at any time: reads and writes wait for some 100 ms then.
	cheapUse = 64 << 20
	// quietUse is the same for a time when little is written. A store with more in use is written anew only to stay below limits.file.
	quietUse = 512 << 20
	// maxFree is the most that limits.free is.
	maxFree = 64 << 20
	// largest is more than what one request may put.
	largest = 4 << 20
	// fragments is the least by which the file may be larger than what is in use.
	fragments = 16 << 20
	// quietBytes is what may be written between two looks in a time that is called quiet.
	quietBytes = 1 << 20
)

func limitsOf(quota int64) limits {
	return limits{
		pressure: quota / 4 * 3, step: quota / 16, create: quota, update: quota + quota/8, file: quota + quota/2 + fragments,
		free: min(quota/4, maxFree),
	}
}

// compact says whether old revisions are to be dropped now, when left was in use after the last time.
func (l limits) compact(inUse, left int64) bool {
	return inUse >= l.pressure && inUse-left >= l.step
}

// worth says whether old revisions are to be dropped for a write, when left was in use after the last time: when another step is in use, or half of what there
// was room for. Else updates would be refused for a minute where the last time has left less than a step, as it may: what is freed is counted late.
func (l limits) worth(w write, inUse, left int64) bool {
	most := l.update
	if w.creates {
		most = l.create
	}
	return inUse-left >= min(l.step, max(w.bytes, (most-left)/2))
}

// defragment says whether the file is to be written anew, which blocks everybody for as long as it takes to copy what is in use.
func (l limits) defragment(size, inUse int64, quiet bool) bool {
	if size < inUse+l.free || size < 2*inUse {
		return l.needed(size) && inUse+l.step < size
	}
	return inUse <= cheapUse || quiet && inUse <= quietUse || l.needed(size)
}

// needed says whether a file of this size is about to be refused more.
func (l limits) needed(size int64) bool { return size+l.step+largest >= l.file }

// noRoom is why an object is not written. It is of the class errdefs.ErrResourceExhausted.
type noRoom struct {
	inUse, quota int64
	update       bool
}

func (e noRoom) Error() string {
	what := "new objects are refused"
	if e.update {
		what = "updates that make an object larger are refused"
	}
	return fmt.Sprintf("the API server's store is full: %s are in use, the quota is %s; %s: delete objects, or start with a larger --etcd-quota (apiServer.etcdQuota)",
		size(e.inUse), size(e.quota), what)
}

func (e noRoom) Unwrap() error { return errdefs.ErrResourceExhausted }

// GRPCStatus is for who comes through the socket.
func (e noRoom) GRPCStatus() *status.Status { return status.New(codes.ResourceExhausted, e.Error()) }

// diskFull is why an object is not made although the quota allows it. It is of the class errdefs.ErrResourceExhausted.
type diskFull struct {
	dir  string
	free int64
}

func (e diskFull) Error() string {
	return fmt.Sprintf("the file system of the API server's store %s has %s left, which are kept for updates and deletions; new objects are refused below %s: make room on it",
		e.dir, size(e.free), size(diskReserve))
}

func (e diskFull) Unwrap() error { return errdefs.ErrResourceExhausted }

// GRPCStatus is for who comes through the socket.
func (e diskFull) GRPCStatus() *status.Status { return status.New(codes.ResourceExhausted, e.Error()) }

// diskReserve is more than the next file of etcd's log, which is made whole in advance: without room for that etcd ends the process.
const diskReserve = 80 << 20

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

const (
	// commitInterval is how long a write may wait for etcd's commit to its database; it is in the log on the disk at once.
	commitInterval = 100 * time.Millisecond
	// lookInterval is how long after a write the keeper looks whether the file should be written anew or its memory given back, and how much is
	// written meanwhile.
	lookInterval = 10 * time.Second
	// countTime bounds how long it is awaited that what dropped revisions have taken is counted as free.
	countTime = 256 * time.Millisecond
	// updateTime is the same for an update that makes its object no larger.
	updateTime = 4096 * time.Millisecond
	// tellInterval is how often it is logged that old revisions were dropped.
	tellInterval = time.Minute
	// defragInterval is the least time between two times at which that is done without need.
	defragInterval = 5 * time.Minute
)
