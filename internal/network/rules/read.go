package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
)

// reader reads what there is, within one operation.
type reader struct {
	site
	conn *nftables.Conn
	ct   *nlsock.Socket // for questions that conn has no words for
}

// sizeofNfgenmsg is that of struct nfgenmsg, which begins the messages of netfilter.
const sizeofNfgenmsg = 4

// generation is the number of the last transaction that anybody has made with nftables on this host.
func (r reader) generation() (gen uint32, err error) {
	const attrID = 1 // NFTA_GEN_ID
	q := nlsock.Request{What: "read the generation of nftables", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Body: make([]byte, sizeofNfgenmsg)}
	err = r.ct.Dump(q, func(body []byte) {
		if len(body) < sizeofNfgenmsg {
			return
		}
		nlsock.EachAttr(body[sizeofNfgenmsg:], func(typ uint16, data []byte) {
			if typ == attrID && len(data) == 4 {
				gen = binary.BigEndian.Uint32(data)
			}
		})
	})
	return gen, err
}

// others lists the chains of the host's IPv4 and IPv6 that are not ours.
func (r reader) others() ([]*nftables.Chain, error) {
	var out []*nftables.Chain
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet} {
		chains, err := r.conn.ListChainsOfTableFamily(family)
		if err != nil {
			return nil, r.explain("listing the chains", err)
		}
		for _, c := range chains {
			if !r.own(c) {
				out = append(out, c)
			}
		}
	}
	return out, nil
}

// rulesOf lists the rules of a chain; one that is gone since it was listed has none.
func (r reader) rulesOf(c *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := r.conn.GetRules(c.Table, c)
	if err != nil {
		// Others may have rules that the library cannot read, such as those that ask for a connection's original direction.
		rules, err = r.plainRules(c)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return rules, r.explain("listing the rules of "+c.Table.Name+" "+c.Name, err)
}

// plainRules lists the rules of a chain as far as somebody needs to know who looks for his own, or for one that refuses all. Of other expressions it says only
// that they are there.
func (r reader) plainRules(c *nftables.Chain) (rules []*nftables.Rule, err error) {
	body := append([]byte{byte(c.Table.Family), 0, 0, 0}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(c.Table.Name)).Serialize()...)
	body = append(body, nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(c.Name)).Serialize()...)
	q := nlsock.Request{What: "list the rules", Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: unix.NLM_F_DUMP, Body: body}
	err = r.ct.Dump(q, func(body []byte) {
		if len(body) < sizeofNfgenmsg {
			return
		}
		if one := plainRule(body[sizeofNfgenmsg:]); one.Table.Name == c.Table.Name && one.Chain.Name == c.Name {
			one.Table, one.Chain = c.Table, c
			rules = append(rules, one)
		}
	})
	return rules, err
}

// checkElements says whether a set holds as much as it should.
func (r reader) checkElements(set *nftables.Set, want int) error {
	have, err := r.conn.GetSetElements(set)
	if err != nil {
		return r.explain("listing the set "+set.Name, err)
	}
	if len(have) < want {
		return fmt.Errorf("network: %d of %d elements are missing in the nftables set %q %q: %w",
			want-len(have), want, set.Table.Name, set.Name, errdefs.ErrUnavailable)
	}
	return nil
}

// full are the addresses that are at their bound.
func (r reader) full() (all []netip.Addr, err error) {
	for _, fam := range families {
		_, set := r.boundSets(fam)
		elements, err := r.conn.GetSetElements(set)
		if err != nil {
			return nil, r.explain("listing the set "+set.Name, err)
		}
		for _, e := range elements {
			if a, ok := netip.AddrFromSlice(e.Key); ok {
				all = append(all, a)
			}
		}
	}
	return all, nil
}
