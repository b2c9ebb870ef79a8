package ruleset

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// elementsInMessage keeps a message below the 64 KiB that an attribute of netlink can have.
const elementsInMessage = 500

// setElemKeyEnd is NFTA_SET_ELEM_KEY_END of linux/netfilter/nf_tables.h: the end of a range.
const setElemKeyEnd = 10

// ElementRequests add elements to a set, or take them away. One that is there is no error, with on; one that is not there is
// an error without.
func ElementRequests(set *nftables.Set, elements []nftables.SetElement, on bool) (reqs []nlsock.Request) {
	typ, flags, what := uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE), "add to "
	if !on {
		typ, flags, what = unix.NFT_MSG_DELSETELEM, 0, "take from "
	}
	for part := range slices.Chunk(elements, elementsInMessage) {
		list := nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, nil)
		for _, e := range part {
			attrs := []*nl.RtAttr{nlsock.Nested(unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.Key))}
			if e.KeyEnd != nil {
				attrs = append(attrs, nlsock.Nested(setElemKeyEnd|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.KeyEnd)))
			}
			if e.Comment != "" && on {
				attrs = append(attrs, nl.NewRtAttr(unix.NFTA_SET_ELEM_USERDATA, userdata.AppendString(nil, userdata.NFTNL_UDATA_SET_ELEM_COMMENT, e.Comment)))
			}
			if e.Val != nil && on {
				attrs = append(attrs, nlsock.Nested(unix.NFTA_SET_ELEM_DATA|unix.NLA_F_NESTED, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.Val)))
			}
			list.AddChild(nlsock.Nested(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, attrs...))
		}
		body := []byte{byte(set.Table.Family), 0, 0, 0}
		body = append(body, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(set.Table.Name)).Serialize()...)
		body = append(body, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set.Name)).Serialize()...)
		body = append(body, list.Serialize()...)
		reqs = append(reqs, nlsock.Request{What: what + "the set " + set.Table.Name + " " + set.Name, Type: unix.NFNL_SUBSYS_NFTABLES<<8 | typ, Flags: flags, Body: body})
	}
	return reqs
}
