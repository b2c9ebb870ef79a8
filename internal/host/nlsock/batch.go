package nlsock

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Batch carries the requests out as one transaction of nftables, all of them or none.
func (r *Socket) Batch(reqs ...Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// struct nfgenmsg: family, version, and in network order which subsystem the transaction is of.
	head := []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}
	r.seq++
	begin := r.seq
	out := Request{Type: unix.NFNL_MSG_BATCH_BEGIN, Body: head}.serialize(nil, begin)
	for _, q := range reqs {
		r.seq++
		q.Flags |= unix.NLM_F_ACK
		out = q.serialize(out, r.seq)
	}
	r.seq++
	out = Request{Type: unix.NFNL_MSG_BATCH_END, Body: head}.serialize(out, r.seq)
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
					errs = append(errs, fmt.Errorf("%s: %w", reqs[i-1].What, errno))
				}
			}
		})
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}
