package links

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
)

// What linux/if_link.h says of RTM_GETSTATS, and of struct rtnl_link_stats64.
const (
	sizeofIfStatsMsg    = 12
	iflaStatsLink64     = 1
	statsFilterLink64   = 1 << (iflaStatsLink64 - 1)
	linkStats64MinBytes = 8 * 8
)

// Counters returns the counters of sandboxes' interfaces, by the sandboxes' ids. They are given by the indexes of the host's ends; of one that is gone there are none. The
// whole of it is one question to the kernel: what the host's ends of the pairs have sent is what the sandboxes have received.
func (r *Socket) Counters(byIndex map[int]ids.SandboxID) (map[ids.SandboxID][]network.InterfaceStat, error) {
	out := make(map[ids.SandboxID][]network.InterfaceStat, len(byIndex))
	body := make([]byte, sizeofIfStatsMsg) // struct if_stats_msg: family, padding, index, filter
	binary.NativeEndian.PutUint32(body[8:], statsFilterLink64)
	q := request{What: "read the counters of the interfaces", Type: unix.RTM_GETSTATS, Flags: unix.NLM_F_DUMP, Body: body}
	take := func(body []byte) {
		if len(body) < sizeofIfStatsMsg {
			return
		}
		id, ok := byIndex[int(binary.NativeEndian.Uint32(body[4:]))]
		if !ok {
			return
		}
		nlsock.EachAttr(body[sizeofIfStatsMsg:], func(typ uint16, data []byte) {
			if typ != iflaStatsLink64 || len(data) < linkStats64MinBytes {
				return
			}
			// rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped of the host's end.
			v := func(i int) uint64 { return binary.NativeEndian.Uint64(data[8*i:]) }
			out[id] = []network.InterfaceStat{{
				Name:      network.InterfaceName,
				TxPackets: v(0), RxPackets: v(1), TxBytes: v(2), RxBytes: v(3),
				TxErrors: v(4), RxErrors: v(5), TxDropped: v(6), RxDropped: v(7),
			}}
		})
	}
	// An interface can be missing in a list that others change meanwhile.
	for range 3 {
		if err := r.Dump(q, take); err != nil {
			return nil, err
		}
		if len(out) == len(byIndex) {
			break
		}
	}
	return out, nil
}
