package links

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/nlsock"
	"monopod.dev/monopod/internal/network/podnet"
)

// Delete deletes interfaces of the host by their names; one that is not there is no error. The kernel deletes all of a
// group in the time of one.
func (r *Socket) Delete(names []string) error {
	if len(names) == 1 {
		err := r.Do(linkRequest("delete "+names[0], unix.RTM_DELLINK, 0, 0, 0, attrName(names[0])))
		if errors.Is(err, unix.ENODEV) {
			return nil
		}
		return err
	}
	some := false
	for part := range slices.Chunk(names, 100) {
		var reqs []request
		for _, name := range part {
			q := linkRequest("delete "+name, unix.RTM_NEWLINK, 0, 0, 0, attrName(name), nlsock.Attr32(unix.IFLA_GROUP, podnet.LeavingGroup))
			q.MayBeGone = true
			reqs = append(reqs, q)
		}
		if err := r.Do(reqs...); err != nil {
			return err
		}
		some = true
	}
	if !some {
		return nil
	}
	err := r.Do(linkRequest("delete interfaces", unix.RTM_DELLINK, 0, 0, 0, nlsock.Attr32(unix.IFLA_GROUP, podnet.LeavingGroup)))
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
