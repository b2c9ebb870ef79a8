package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/wait"
)

// keeper keeps room in the store. It commits etcd's writes to the database soon after the first of them (etcd's own timer for that runs
// for ever), drops old revisions early when the use comes near the quota, writes the file anew when most of it is free, gives the file's memory back
// after a burst, and clears etcd's alarm. A store that nobody writes to costs it nothing.
//
//	          a write                     commitInterval
//	asleep ------------> written to ------------------------> commit, look ---> asleep
//	   ^                                                        |  old revisions dropped, file written anew,
//	   +--------------------------------------------------------+  memory given back when there is a reason
//
// A write for which there is no room waits for a round that makes room, and is refused when that was in vain.
type keeper struct {
	etcd *etcdserver.EtcdServer
	// kv is etcd's own service, without the gate.
	kv     pb.KVServer
	limits limits
	dir    string
	log    *slog.Logger

	// ctx ends with the keeper.
	ctx context.Context // requests and the keeper's own work end with either
	// first is sent to by the first write since the last commit, of which written tells.
	first   chan struct{}
	written atomic.Bool
	// asks are writes for which there was no room.
	asks chan ask
	// pending are bytes that were let in and may not be in the database's size yet; ended are those of them whose request has ended.
	pending, ended atomic.Int64
	// deleted: something was deleted since old revisions were dropped the last time.
	deleted atomic.Bool
	// total is what was written in all.
	total atomic.Int64
	// full: the last object was refused.
	full atomic.Bool

	// The rest is the goroutine's own.

	// left was in use when old revisions had been dropped, up to revision, which took dropTook and ended at dropped.
	left     int64
	revision int64
	dropped  time.Time
	dropTook time.Duration
	// told is when that was logged.
	told time.Time
	// defragmented is when the file was written anew, or could not be.
	defragmented time.Time
	// lookTotal is total at the last look, releaseTotal when the file's memory was given back.
	lookTotal, releaseTotal int64
}

// revisionKey is the key with which API servers tell each other which revisions are gone; its version counts the times.
const revisionKey = "compact_rev_key"

func (k *keeper) run() {
	commit, look := time.NewTimer(0), time.NewTimer(lookInterval)
	defer commit.Stop()
	defer look.Stop()
	looking := true
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.etcd.StoppingNotify(): // by itself
			return
		case <-k.first:
			commit.Reset(commitInterval)
		case <-commit.C:
			k.commit()
			if !looking && (k.wasteful() || k.touched()) {
				look.Reset(lookInterval)
				looking = true
			}
			if k.limits.compact(k.inUse(), k.left) {
				k.drop("the use comes near the quota")
			}
			k.clearAlarm()
		case a := <-k.asks:
			k.makeRoom(a.write)
			close(a.done)
		case <-look.C:
			if looking = k.look(); looking {
				look.Reset(lookInterval)
			}
		}
	}
}

// wrote tells the keeper of a write that has ended.
func (k *keeper) wrote(bytes int64) {
	k.total.Add(bytes)
	k.ended.Add(bytes)
	if k.written.CompareAndSwap(false, true) {
		select {
		case k.first <- struct{}{}:
		default: // it knows
		}
	}
}

// admit lets a write in, as far as there is room for it, for which it may wait.
func (k *keeper) admit(ctx context.Context, w write) error {
	if w.creates {
		if free := k.diskFree(); free < diskReserve {
			return diskFull{k.dir, free}
		}
	}
	if k.fits(ctx, w) {
		k.pending.Add(w.bytes)
		if w.creates && k.full.CompareAndSwap(true, false) {
			k.log.Info("the store has room again", "inUse", size(k.inUse()), "quota", size(k.limits.create))
		}
		return nil
	}
	done := make(chan struct{})
	select {
	case k.asks <- ask{w, done}:
	case <-ctx.Done():
		return ctx.Err()
	case <-k.ctx.Done():
		return rpctypes.ErrGRPCStopped
	}
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	case <-k.ctx.Done():
		return rpctypes.ErrGRPCStopped
	}
	if k.fits(ctx, w) {
		k.pending.Add(w.bytes)
		return nil
	}
	err := noRoom{inUse: k.inUse() + k.pending.Load(), quota: k.limits.create, update: !w.creates}
	if k.full.CompareAndSwap(false, true) {
		k.log.Warn("the store is full", "error", err)
	}
	return err
}

// fits says whether a write is within the limits.
func (k *keeper) fits(ctx context.Context, w write) bool {
	if len(k.etcd.Alarms()) > 0 {
		return false
	}
	pending := k.pending.Load()
	inUse := k.inUse() + pending + w.bytes
	if k.etcd.Backend().Size()+pending+w.bytes >= k.limits.file && inUse+k.limits.step < k.etcd.Backend().Size() {
		return false // the file has to be written anew
	}
	switch {
	case inUse <= k.limits.create:
		return true
	case w.creates || inUse > k.limits.update:
		return false
	}
	return !k.grows(ctx, w)
}

// slack is by how much an object may grow where none may: a deletion's time, a condition.
const slack = 4 << 10

// grows says whether an update makes its object larger than it was.
func (k *keeper) grows(ctx context.Context, w write) bool {
	if w.key == nil || w.bytes > int64(w.value)+overhead+int64(len(w.key)) {
		return w.bytes > slack // several puts
	}
	old, err := k.kv.Range(ctx, &pb.RangeRequest{Key: w.key, Serializable: true})
	if err != nil || len(old.GetKvs()) == 0 {
		return true
	}
	return w.value > len(old.GetKvs()[0].GetValue())+slack
}

func (k *keeper) inUse() int64 { return k.etcd.Backend().SizeInUse() }

// diskFree is the room on the file system; where nobody can tell, it is plenty.
func (k *keeper) diskFree() int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(k.dir, &st); err != nil {
		return diskReserve
	}
	return int64(min(st.Bavail, 1<<40)) * st.Bsize // bounded before
}

// commit writes what etcd has collected to its database, which tells the sizes anew.
func (k *keeper) commit() {
	k.written.Store(false)
	n := k.ended.Swap(0)
	k.etcd.Backend().ForceCommit()
	k.pending.Add(-n)
	k.left = min(k.left, k.inUse()) // the API server drops revisions by their age
}

// wasteful says whether a look could lead to something.
func (k *keeper) wasteful() bool {
	return k.limits.defragment(k.etcd.Backend().Size(), k.inUse(), true)
}

// touched says whether enough was written for the file's pages in memory to count.
func (k *keeper) touched() bool { return k.total.Load()-k.releaseTotal > quietBytes }

// look writes the file anew, or gives its memory back, if that is worth it now. It says whether it is to be called again although nothing more is written.
func (k *keeper) look() (again bool) {
	total := k.total.Load()
	quiet := total-k.lookTotal <= quietBytes
	k.lookTotal = total
	if k.touched() {
		if again = !quiet; quiet {
			k.release()
		}
	}
	if time.Since(k.defragmented) < defragInterval && !k.limits.needed(k.etcd.Backend().Size()) {
		return again // the next commit asks, too
	}
	if k.limits.defragment(k.etcd.Backend().Size(), k.inUse(), quiet) {
		k.defragment("most of it is free")
	}
	k.clearAlarm()
	return again
}

// release gives the memory of the file back; what is used comes back by itself.
func (k *keeper) release() {
	k.releaseTotal = k.total.Load()
	tx := k.etcd.Backend().ReadTx()
	tx.RLock() // who asks for a defragmentation through the socket, which maps another file, waits
	defer tx.RUnlock()
	if err := release(k.dir); err != nil {
		k.log.Debug("etcd's memory stays as it is", "error", err)
	}
}

// ask is a write that waits for room; done is closed when there is as much as can be made.
type ask struct {
	write write
	done  chan struct{}
}

// makeRoom does what can be done for a write that does not fit.
func (k *keeper) makeRoom(w write) {
	k.commit()
	if k.fits(k.ctx, w) {
		return // what was let in has taken less than was thought
	}
	// An attempt that gains nothing costs a look at every revision, so it needs a reason; and attempts do not take all the time.
	stale := time.Since(k.dropped)
	deleted := k.deleted.Load()
	if deleted || k.limits.worth(w, k.inUse(), k.left) || stale > time.Minute {
		if wait.For(k.ctx, min(2*k.dropTook-stale, 5*time.Second)) != nil {
			return
		}
		k.drop("there is no room for a write")
		k.await(w, countTime)
	}
	if !w.creates && !k.grows(k.ctx, w) { // it takes what the object has by now: there is room for it as soon as all that is dropped is counted
		k.await(w, updateTime)
	}
	s := k.etcd.Backend().Size()
	// Under the alarm there are no puts, after which the size in use would be told anew.
	blind := len(k.etcd.Alarms()) > 0 && (deleted || time.Since(k.defragmented) > time.Minute)
	if k.limits.needed(s) && (blind || k.limits.defragment(s, k.inUse(), false)) {
		k.defragment("it is as large as it may be")
	}
	k.clearAlarm()
}

// await gives the database time to count what dropped revisions have taken: it does when whoever reads it as it was before has finished, and a transaction
// has ended after that.
func (k *keeper) await(w write, most time.Duration) {
	for pause := time.Millisecond; pause < most && k.revision > 0 && !k.fits(k.ctx, w); pause *= 2 {
		if wait.For(k.ctx, pause) != nil {
			return
		}
		if _, err := k.kv.Put(k.ctx, &pb.PutRequest{Key: []byte(revisionKey), Value: []byte(strconv.FormatInt(k.revision, 10))}); err != nil {
			return // the alarm: there are no transactions
		}
		k.commit()
	}
	k.left = min(k.left, k.inUse())
}

// drop drops all revisions but the present ones. Watches and paged lists that would go on from an older one get 410 Gone, upon which
// clients list anew.
func (k *keeper) drop(why string) {
	begin, before := time.Now(), k.inUse()
	k.deleted.Store(false)
	rev := k.etcd.KV().Rev()
	_, err := k.kv.Compact(k.ctx, &pb.CompactionRequest{Revision: rev, Physical: true})
	if errors.Is(err, rpctypes.ErrGRPCCompacted) {
		err = nil
	}
	if err == nil {
		k.revision = rev
	}
	alarmed := len(k.etcd.Alarms()) > 0
	// What a transaction frees is counted when the next one has ended.
	for range 3 {
		if err == nil && !alarmed {
			_, err = k.kv.Put(k.ctx, &pb.PutRequest{Key: []byte(revisionKey), Value: []byte(strconv.FormatInt(rev, 10))})
		}
		k.commit()
	}
	k.left, k.dropped, k.dropTook = k.inUse(), time.Now(), time.Since(begin)
	switch {
	case k.ctx.Err() != nil:
	case err != nil:
		k.log.Warn("old revisions could not be dropped", "reason", why, "error", err)
	default:
		level := slog.LevelDebug
		if time.Since(k.told) > tellInterval {
			level, k.told = slog.LevelInfo, time.Now()
		}
		k.log.Log(k.ctx, level, "old revisions were dropped before their time", "reason", why, "revision", rev, "inUse", size(k.left), "before", size(before),
			"quota", size(k.limits.create), "took", k.dropTook.Round(time.Millisecond))
	}
}

// defragment writes the file anew. Everybody waits meanwhile. A process that is killed meanwhile leaves the old file and a part of the
// new one, which the next start removes.
func (k *keeper) defragment(why string) {
	begin, before := time.Now(), k.etcd.Backend().Size()
	k.defragmented = begin
	if need, free := k.inUse()+k.inUse()/4, k.diskFree(); free < need+diskReserve {
		k.log.Warn("the store's file cannot be written anew: its file system has too little room", "free", size(free), "needed", size(need+diskReserve))
		return
	}
	if err := errors.Join(k.etcd.Defragment(), syncDir(filepath.Join(k.dir, "member", "snap"))); err != nil {
		k.log.Warn("the store's file could not be written anew", "reason", why, "error", err)
		return
	}
	took := time.Since(begin)
	k.release()
	k.log.Info("the store's file was written anew", "reason", why, "size", size(k.etcd.Backend().Size()), "before", size(before),
		"inUse", size(k.inUse()), "blocked", took.Round(time.Millisecond))
}

// clearAlarm lets etcd accept writes again that it has refused for lack of room, when there is some.
func (k *keeper) clearAlarm() {
	for _, a := range k.etcd.Alarms() {
		if a.GetAlarm() != pb.AlarmType_NOSPACE || k.etcd.Backend().Size()+k.limits.step >= k.limits.file {
			continue
		}
		_, err := k.etcd.Alarm(k.ctx, &pb.AlarmRequest{MemberID: a.GetMemberID(), Action: pb.AlarmRequest_DEACTIVATE, Alarm: a.GetAlarm()})
		if err != nil {
			k.log.Warn("etcd's alarm NOSPACE could not be cleared", "error", err)
			continue
		}
		k.log.Info("etcd's alarm NOSPACE is cleared: there is room again", "inUse", size(k.inUse()), "quota", size(k.limits.create))
	}
}

// removeTemporary removes the new files of defragmentations that were cut off. etcd does so only when it has a snapshot of its log, and each
// is as large as what is in use.
func removeTemporary(dataDir string) error {
	left, err := filepath.Glob(filepath.Join(dataDir, "member", "snap", "db.tmp.*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// syncDir makes a rename in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
