// Package ruleset is what tables of nftables have in common, whoever's they are: elements of sets come and go in one transaction, without a tool, and a
// watcher hears of every change that others make of the rule set, without asking.
package ruleset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// WatchConfig says what a Watcher does about changes of the rule set.
type WatchConfig struct {
	// Own is the name of a socket (nlsock.Socket.PortID) whose transactions are not told.
	Own uint32
	// Judge says how much an event matters.
	Judge func(Event) Concern
	// Look looks, and repairs what is not as it should be; repaired: something was.
	Look func(context.Context) (repaired bool)
	// Wait is called when something of the owner's own was touched but Look has to wait, because it had to repair often; nil: nothing is done then.
	Wait func()
}

// Event is one change of the rule set.
type Event struct {
	// Kind is NFT_MSG_NEWTABLE and so on.
	Kind uint16
	// Family is an NFPROTO.
	Family byte
	Table  string
	// Chain is the chain of a rule.
	Chain string
	// Hooked: it is about a chain that packets come to by themselves.
	Hooked bool
}

// Concern says how much an event matters.
type Concern int

const (
	// Untouched: nothing that matters.
	Untouched Concern = iota
	// Elsewhere: others' rules, which own ones may have to follow.
	Elsewhere
	// Touched: something of the owner's own.
	Touched
)

// Watcher calls Look as soon as somebody has changed what matters: the kernel tells every transaction (NFNLGRP_NFTABLES).
// Nothing is done, and no time is spent, while nobody changes anything. What the owner of the Watcher writes is not looked at.
type Watcher struct {
	cfg    WatchConfig
	events *os.File
	done   chan struct{}
	active atomic.Bool
	looks  atomic.Int64

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	// The name of another socket by which the owner writes.
	writer atomic.Uint32
}

// Watch begins to listen, in the network namespace of the calling thread. Nothing is looked at before SetActive.
func Watch(ctx context.Context, cfg WatchConfig) (*Watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	// Not handed over is what the owner's socket has done: who has asked is the word at offset 12 of a message's header, and
	// all messages of a datagram are of one transaction.
	var own [4]byte
	binary.NativeEndian.PutUint32(own[:], cfg.Own)
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
	w := &Watcher{cfg: cfg, events: os.NewFile(uintptr(fd), "nftables events"), done: make(chan struct{})}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // it ends by Close: the caller's context is that of opening
	go w.run()
	return w, nil
}

// SetActive says whether anything is to be looked at.
func (w *Watcher) SetActive(on bool) { w.active.Store(on) }

// Active says what SetActive was told.
func (w *Watcher) Active() bool { return w.active.Load() }

// SetWriter names another socket whose transactions are not looked at.
func (w *Watcher) SetWriter(portID uint32) { w.writer.Store(portID) }

// Looks is how often was looked.
func (w *Watcher) Looks() int64 { return w.looks.Load() }

// Close ends the watching. When it returns Look is not running, and is not called any more.
func (w *Watcher) Close() {
	w.stop()
	w.events.Close()
	<-w.done
}

func (w *Watcher) run() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	var p pace
	pending := Untouched
	for {
		n, err := w.events.Read(buf)
		switch {
		case err == nil && sender(buf[:n]) == w.writer.Load():
		case err == nil:
			pending = max(pending, w.concerns(buf[:n]))
		case errors.Is(err, unix.ENOBUFS):
			pending = Touched // events were lost
		case errors.Is(err, os.ErrDeadlineExceeded):
		default: // closed
			return
		}
		if !w.active.Load() {
			pending = Untouched
		}
		var next time.Time
		if pending != Untouched {
			if next = p.due(pending); time.Until(next) <= 0 {
				pending, next = Untouched, time.Time{}
				w.looks.Add(1)
				repaired := w.cfg.Look(w.ctx)
				p.looked(time.Now(), repaired)
			} else if pending == Touched && w.cfg.Wait != nil {
				w.cfg.Wait()
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

// concerns reads a datagram of events.
func (w *Watcher) concerns(b []byte) (c Concern) {
	_ = nlsock.EachMessage(b, func(typ uint16, _ uint32, body []byte) {
		if e, ok := ParseEvent(typ, body); ok {
			c = max(c, w.cfg.Judge(e))
		}
	})
	return c
}

// ParseEvent reads one message. It is pure.
func ParseEvent(typ uint16, body []byte) (e Event, ok bool) {
	const header = 4 // struct nfgenmsg
	if typ>>8 != unix.NFNL_SUBSYS_NFTABLES || len(body) < header {
		return e, false
	}
	// The first attribute of all these messages is the table's name; the second of a rule's its chain (NFTA_RULE_CHAIN).
	e.Kind, e.Family = typ&0xff, body[0]
	nlsock.EachAttr(body[header:], func(attr uint16, data []byte) {
		switch {
		case attr == unix.NFTA_TABLE_NAME:
			e.Table = nl.BytesToString(data)
		case attr == unix.NFTA_CHAIN_HOOK && (e.Kind == unix.NFT_MSG_NEWCHAIN || e.Kind == unix.NFT_MSG_DELCHAIN):
			e.Hooked = true
		case attr == unix.NFTA_RULE_CHAIN && (e.Kind == unix.NFT_MSG_NEWRULE || e.Kind == unix.NFT_MSG_DELRULE):
			e.Chain = nl.BytesToString(data)
		}
	})
	return e, e.Kind != unix.NFT_MSG_NEWGEN
}
