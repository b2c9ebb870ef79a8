package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
)

// grace is how long an interface may stay after Teardown, before it is deleted. Who tears a sandbox down removes its network
// namespace next, and the kernel deletes the interface with that.
const grace = time.Second

// leaving waits for the interfaces of sandboxes that are torn down, and frees their addresses when they are gone.
//
// To delete an interface takes the kernel some 10 ms, in which nobody else can change any network device: it waits until
// no processor uses it any more. A network namespace that ends makes it wait too, once for everything in it and for all
// namespaces that end at the time. So interfaces are left to end with their namespaces. One that stays for longer, because
// somebody holds the namespace, is deleted.
type leaving struct {
	from   departed
	log    *slog.Logger
	events *os.File // RTM_DELLINK messages of the host
	done   chan struct{}

	mu      sync.Mutex
	pending map[string]departure // by the name of the host's end
	begun   uint64               // how many have been added
}

// departed is what sandboxes leave.
type departed interface {
	// end looks the host's end of a pair up.
	end(name string) (index int, found bool, err error)
	// lock takes the lock of a sandbox, under which it may leave.
	lock(sandboxID ids.SandboxID) (unlock func())
	// left is the lease of a sandbox that leaves; ok: it does.
	left(sandboxID ids.SandboxID) (rec lease.Lease, ok bool)
	// clear deletes the interfaces, and frees what the sandboxes have. It is called with their locks held.
	clear(interfaces []string, recs map[ids.SandboxID]lease.Lease) error
}

type departure struct {
	sandboxID ids.SandboxID
	number    uint64 // tells it from the next one of the same sandbox, which may be connected again and leave once more
	index     int    // of the interface; 0: there was none
	deadline  time.Time
	gone      bool
}

// openLeaving begins to listen, in the network namespace of the calling thread.
func openLeaving(from departed, log *slog.Logger) (*leaving, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	// Only deletions are handed over: the type of a message is the two bytes at offset 4 of its header.
	var typ [2]byte
	binary.NativeEndian.PutUint16(typ[:], unix.RTM_DELLINK)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(binary.BigEndian.Uint16(typ[:]))},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket for events: %w", err)
	}
	l := &leaving{from: from, log: log, events: os.NewFile(uintptr(fd), "netlink events"), done: make(chan struct{}), pending: map[string]departure{}}
	go l.run()
	return l, nil
}

// close ends the waiting, and finishes what is pending: nobody would until the next Reconcile. What cannot be finished is left to that.
func (l *leaving) close() {
	l.events.Close()
	<-l.done
	if err := l.now(); err != nil {
		l.log.Error("addresses of sandboxes that are gone stay in use until the next start", "error", err)
	}
}

// add begins to wait for an interface. It may be gone already.
func (l *leaving) add(sandboxID ids.SandboxID, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.pending[name]; ok {
		return nil
	}
	l.begun++
	l.pending[name] = departure{sandboxID: sandboxID, number: l.begun, deadline: time.Now().Add(grace)}
	// Looked for after it is in the list: an event from here on is not missed.
	index, found, err := l.from.end(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	d := l.pending[name]
	d.index, d.gone = index, !found
	l.pending[name] = d
	l.schedule()
	return nil
}

// forget ends the waiting for an interface that somebody has deleted.
func (l *leaving) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, name)
}

// markGone is called with the lock held.
func (l *leaving) markGone(name string) {
	if d, ok := l.pending[name]; ok {
		d.gone, d.deadline = true, time.Time{}
		l.pending[name] = d
	}
}

// schedule makes the goroutine wake up when the next one is due. It is called with the lock held.
func (l *leaving) schedule() {
	var next time.Time
	for _, d := range l.pending {
		if d.gone {
			next = time.Now()
			break
		}
		if next.IsZero() || d.deadline.Before(next) {
			next = d.deadline
		}
	}
	_ = l.events.SetReadDeadline(next) // it fails when the file is closed, and then run has ended
}

func (l *leaving) run() {
	defer close(l.done)
	buf := make([]byte, 16<<10)
	for {
		n, err := l.events.Read(buf)
		switch {
		case err == nil:
			l.take(buf[:n])
		case errors.Is(err, unix.ENOBUFS):
			l.lookForAll() // events were lost
		case errors.Is(err, os.ErrDeadlineExceeded):
		default: // closed
			return
		}
		l.free()
	}
}

// take notes which interfaces an event says are gone.
func (l *leaving) take(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = nlsock.EachMessage(b, func(typ uint16, _ uint32, body []byte) {
		// Leaving the bridge is told by a message of this type, too, with another family.
		if typ != unix.RTM_DELLINK || len(body) < unix.SizeofIfInfomsg || body[0] != unix.AF_UNSPEC {
			return
		}
		index := int(int32(binary.NativeEndian.Uint32(body[4:])))
		nlsock.EachAttr(body[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) {
			if typ != unix.IFLA_IFNAME {
				return
			}
			// An event may be that of an earlier interface of the name.
			if name := nl.BytesToString(data); l.pending[name].index == index {
				l.markGone(name)
			}
		})
	})
}

func (l *leaving) lookForAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.pending {
		if _, found, err := l.from.end(name); err == nil && !found {
			l.markGone(name)
		}
	}
}

// free deletes the interfaces whose time is over, and frees the addresses of those that are gone. What fails is tried
// again after another grace.
func (l *leaving) free() {
	now := time.Now()
	l.mu.Lock()
	due := map[string]departure{}
	var overdue []string
	for name, d := range l.pending {
		switch {
		case d.gone:
			due[name] = d
		case !now.Before(d.deadline):
			due[name] = d
			overdue = append(overdue, name)
		}
	}
	l.mu.Unlock()
	var err error
	if len(due) > 0 {
		if err = l.finish(due, overdue); err != nil {
			l.log.Error("addresses of sandboxes that are gone stay in use for now", "error", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, d := range due {
		if l.pending[name].number != d.number {
			continue
		}
		if err == nil {
			delete(l.pending, name)
		} else {
			d.gone, d.deadline = false, time.Now().Add(grace)
			l.pending[name] = d
		}
	}
	l.schedule()
}

// finish does so for these, with the locks of their sandboxes.
func (l *leaving) finish(due map[string]departure, overdue []string) error {
	var gone []ids.SandboxID
	for _, d := range due {
		gone = append(gone, d.sandboxID)
	}
	slices.Sort(gone) // only this takes several locks, so any order would do
	for _, id := range gone {
		defer l.from.lock(id)()
	}
	// Meanwhile one may have been connected again, and even be leaving once more.
	stale := l.stale(due)
	recs := map[ids.SandboxID]lease.Lease{}
	gone = slices.DeleteFunc(gone, func(id ids.SandboxID) bool {
		rec, ok := l.from.left(id)
		if !ok || stale[id] {
			return true
		}
		recs[id] = rec
		return false
	})
	overdue = slices.DeleteFunc(overdue, func(name string) bool { return !slices.Contains(gone, due[name].sandboxID) })
	return l.from.clear(overdue, recs)
}

// stale are the sandboxes of departures that are not waited for any more.
func (l *leaving) stale(due map[string]departure) map[ids.SandboxID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	stale := map[ids.SandboxID]bool{}
	for name, d := range due {
		if l.pending[name].number != d.number {
			stale[d.sandboxID] = true
		}
	}
	return stale
}

// some says whether anything is pending.
func (l *leaving) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) > 0
}

// now finishes all that is pending, without waiting for it.
func (l *leaving) now() error {
	l.mu.Lock()
	due := maps.Clone(l.pending)
	l.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	if err := l.finish(due, slices.Collect(maps.Keys(due))); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, d := range due {
		if l.pending[name].number == d.number {
			delete(l.pending, name)
		}
	}
	return nil
}
