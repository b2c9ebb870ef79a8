package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
)

// watcher repairs the rule set as soon as somebody has changed it: the kernel tells every transaction (NFNLGRP_NFTABLES).
// Nothing is done, and no time is spent, while nobody changes anything. The elements that come and go with sandboxes are not
// told (batch.go), and what this node writes else is not looked at.
type watcher struct {
	bridge *Bridge
	events *os.File
	done   chan struct{}
	active atomic.Bool // between Start and Remove
	looks  atomic.Int64

	ctx  context.Context // ends with close
	stop context.CancelFunc
	// The name of the socket by which this node writes its tables.
	writer atomic.Uint32
	// Where others' rules for forwarded packets are, as last found: a change elsewhere concerns nobody.
	foreign atomic.Pointer[map[chainName]bool]
}

type chainName struct {
	family       byte
	table, chain string
}

// openWatcher begins to listen, in the network namespace of the calling thread.
func openWatcher(ctx context.Context, b *Bridge) (*watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	// Not handed over is what the node's own socket has done: who has asked is the word at offset 12 of a message's header, and
	// all messages of a datagram are of one transaction.
	var own [4]byte
	binary.NativeEndian.PutUint32(own[:], b.elements.portID)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: binary.BigEndian.Uint32(own[:])},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 20},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket for events of nftables: %w", err)
	}
	w := &watcher{bridge: b, events: os.NewFile(uintptr(fd), "nftables events"), done: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // it ends by close: the caller's context is that of opening
	go w.run()
	return w, nil
}

// close ends the watching.
func (w *watcher) close() {
	w.stop()
	w.events.Close()
	<-w.done
}

func (w *watcher) run() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	var p pace
	pending := untouched
	for {
		n, err := w.events.Read(buf)
		switch {
		case err == nil && sender(buf[:n]) == w.writer.Load():
		case err == nil:
			pending = max(pending, w.concerns(buf[:n]))
		case errors.Is(err, unix.ENOBUFS):
			pending = touched // events were lost
		case errors.Is(err, os.ErrDeadlineExceeded):
		default: // closed
			return
		}
		if !w.active.Load() {
			pending = untouched
		}
		var next time.Time
		if pending != untouched {
			if next = p.due(pending); time.Until(next) <= 0 {
				pending, next = untouched, time.Time{}
				repaired := w.look()
				p.looked(time.Now(), repaired)
			} else if pending == touched {
				w.shut()
			}
		}
		_ = w.events.SetReadDeadline(next) // it fails when the file is closed, and then Read tells
	}
}

// sender is the name of the socket whose request the messages of a datagram are about, all of the same.
func sender(b []byte) uint32 {
	if len(b) < unix.NLMSG_HDRLEN {
		return 0
	}
	return binary.NativeEndian.Uint32(b[12:])
}

// look repairs what is not as it should be.
func (w *watcher) look() (repaired bool) {
	b := w.bridge
	w.looks.Add(1)
	err := b.onHost(func() (err error) {
		repaired, err = b.heal(w.ctx, w.active.Load)
		return err
	})
	if err != nil {
		b.log.Error("the network is not as it should be", "error", err)
	}
	return repaired
}

// shut closes the way to the host's loopback addresses until the guard is looked at.
func (w *watcher) shut() {
	b := w.bridge
	err := b.onHost(func() error {
		b.hostMu.Lock()
		defer b.hostMu.Unlock()
		if !w.active.Load() {
			return nil
		}
		b.shut = true
		return b.routeLocalnet(false)
	})
	if err != nil {
		b.log.Error("pods may reach the host's loopback addresses", "error", err)
	}
}

// onHost calls f on a thread that is in the host's network namespace, whose sysctls it sees then.
func (b *Bridge) onHost(f func() error) error {
	return ns.Run(fmt.Sprintf("/proc/self/fd/%d", int(b.hostNS)), ns.Network, f)
}

// concern says how much an event matters.
type concern int

const (
	untouched concern = iota // nothing of ours
	elsewhere                // others' rules for what is forwarded, or translated: ours may have to follow
	touched                  // something of ours
)

// concerns reads a datagram of events.
func (w *watcher) concerns(b []byte) (c concern) {
	var foreign map[chainName]bool
	if known := w.foreign.Load(); known != nil {
		foreign = *known
	}
	_ = eachMessage(b, func(typ uint16, _ uint32, body []byte) {
		c = max(c, concernOf(typ, body, w.bridge.table, foreign))
	})
	return c
}

// concernOf judges one event. It is pure.
func concernOf(typ uint16, body []byte, table string, foreign map[chainName]bool) concern {
	if typ>>8 != unix.NFNL_SUBSYS_NFTABLES || len(body) < sizeofNfgenmsg {
		return untouched
	}
	// The first attribute of all these messages is the table's name; the third is a chain's name (NFTA_CHAIN_NAME), the second
	// the chain of a rule (NFTA_RULE_CHAIN).
	name := chainName{family: body[0]}
	hooked := false
	kind := typ & 0xff
	eachAttr(body[sizeofNfgenmsg:], func(attr uint16, data []byte) {
		switch {
		case attr == unix.NFTA_TABLE_NAME:
			name.table = nl.BytesToString(data)
		case attr == unix.NFTA_CHAIN_HOOK && (kind == unix.NFT_MSG_NEWCHAIN || kind == unix.NFT_MSG_DELCHAIN):
			hooked = true
		case attr == unix.NFTA_RULE_CHAIN && (kind == unix.NFT_MSG_NEWRULE || kind == unix.NFT_MSG_DELRULE):
			name.chain = nl.BytesToString(data)
		}
	})
	ownFamily := nftables.TableFamily(name.family) == nftables.TableFamilyINet || nftables.TableFamily(name.family) == nftables.TableFamilyBridge
	switch kind {
	case unix.NFT_MSG_NEWGEN:
		return untouched
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE, unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		if hooked && !(ownFamily && name.table == table) {
			return elsewhere
		}
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		if foreign[name] {
			return elsewhere
		}
	}
	if ownFamily && name.table == table {
		return touched
	}
	return untouched
}

// know tells the watcher which chains of others matter.
func (w *watcher) know(chains map[chainName]bool) {
	chains = maps.Clone(chains)
	w.foreign.Store(&chains)
}

// pace is how often is looked and repaired. Against somebody who takes the rules away again and again, each repair makes the
// next one wait longer; for the sake of others' rules is looked a few times a second at most. It is pure.
type pace struct {
	notBefore time.Time // no repair
	notForOld time.Time // no look for others' sake
	wait      time.Duration
	last      time.Time // the last repair
}

const (
	firstWait    = 20 * time.Millisecond
	longestWait  = 10 * time.Second
	foreignPause = 300 * time.Millisecond
)

// due is when to look; in the past: now.
func (p *pace) due(c concern) time.Time {
	if c == elsewhere && p.notForOld.After(p.notBefore) {
		return p.notForOld
	}
	return p.notBefore
}

// looked notes a look, and whether it had to repair.
func (p *pace) looked(now time.Time, repaired bool) {
	p.notForOld = now.Add(foreignPause)
	if !repaired {
		return
	}
	// Who leaves the rules alone for long enough is forgiven.
	if p.last.IsZero() || now.Sub(p.last) > 16*p.wait+time.Second {
		p.wait = firstWait
	} else {
		p.wait = min(2*p.wait, longestWait)
	}
	p.last, p.notBefore = now, now.Add(p.wait)
}
