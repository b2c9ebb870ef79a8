package rules

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// connection is the one by which tables are written.
//
// It lasts: to close one makes the kernel wait until nobody uses what was deleted over it, some 10 ms. After an
// error it is replaced, for answers to a failed transaction may be in it.
type connection struct {
	netNS netns.NsHandle
	// writes is told the netlink port of each.
	writes func(port uint32)
	nft    *nftables.Conn // nil: none is open
}

// open takes the connection, or makes one.
func (c *connection) open() (_ *nftables.Conn, err error) {
	if c.nft == nil {
		if c.nft, err = nftables.New(nftables.WithNetNSFd(int(c.netNS)), nftables.AsLasting(), nftables.WithSockOptions(c.prepare)); err != nil {
			return nil, fmt.Errorf("network: nftables: %w", err)
		}
	}
	return c.nft, nil
}

// prepare makes room for answers: the kernel answers each rule of a transaction before the first answer is read. And it
// tells whose transactions are this node's own.
func (c *connection) prepare(sock *mdnetlink.Conn) error {
	raw, err := sock.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if name, err := unix.Getsockname(int(fd)); err == nil {
				c.writes(name.(*unix.SockaddrNetlink).Pid)
			}
		})
	}
	return errors.Join(err, sock.SetReadBuffer(4<<20))
}

// close ends it. The next operation makes another one.
func (c *connection) close() {
	if c.nft != nil {
		_ = c.nft.CloseLasting() // nothing is lost with it
		c.nft = nil
	}
}
