package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What comes and goes with a sandbox are elements of sets, and nothing else. They are sent by a socket of this package: its
// name is known, so that the watcher (watch.go) is not woken by them, and it takes one system call to send and one to hear.

// batch carries the requests out as one transaction of nftables, all of them or none.
func (r *rtnl) batch(reqs ...request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// struct nfgenmsg: family, version, and in network order which subsystem the transaction is of.
	head := []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}
	r.seq++
	begin := r.seq
	out := request{typ: unix.NFNL_MSG_BATCH_BEGIN, body: head}.serialize(nil, begin)
	for _, q := range reqs {
		r.seq++
		q.flags |= unix.NLM_F_ACK
		out = q.serialize(out, r.seq)
	}
	r.seq++
	out = request{typ: unix.NFNL_MSG_BATCH_END, body: head}.serialize(out, r.seq)
	if err := r.send(out); err != nil {
		return err
	}
	var errs []error
	for open := len(reqs); open > 0; {
		// The kernel has answered before send returned: what is not there does not come.
		err := r.receiveWith(unix.MSG_DONTWAIT, func(typ uint16, seq uint32, body []byte) {
			if typ != unix.NLMSG_ERROR || len(body) < 4 {
				return
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			switch i := seq - begin; {
			case i == 0 && errno != 0: // the transaction as a whole
				open = 0
				errs = append(errs, fmt.Errorf("transaction: %w", errno))
			case i >= 1 && i <= uint32(len(reqs)):
				open--
				if errno != 0 {
					errs = append(errs, fmt.Errorf("%s: %w", reqs[i-1].what, errno))
				}
			}
		})
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// elementRequests add elements to a set, or take them away. One that is there is no error, with on; one that is not there is
// an error without.
func elementRequests(set *nftables.Set, elements []nftables.SetElement, on bool) (reqs []request) {
	typ, flags, what := uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE), "add to "
	if !on {
		typ, flags, what = unix.NFT_MSG_DELSETELEM, 0, "take from "
	}
	for part := range slices.Chunk(elements, elementsInMessage) {
		list := nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, nil)
		for _, e := range part {
			attrs := []*nl.RtAttr{nested(unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.Key))}
			if e.Val != nil && on {
				attrs = append(attrs, nested(unix.NFTA_SET_ELEM_DATA|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.Val)))
			}
			list.AddChild(nested(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, attrs...))
		}
		body := []byte{byte(set.Table.Family), 0, 0, 0}
		body = append(body, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(set.Table.Name)).Serialize()...)
		body = append(body, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set.Name)).Serialize()...)
		body = append(body, list.Serialize()...)
		reqs = append(reqs, request{what: what + "the set " + set.Table.Name + " " + set.Name, typ: unix.NFNL_SUBSYS_NFTABLES<<8 | typ, flags: flags, body: body})
	}
	return reqs
}
