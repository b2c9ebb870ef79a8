package status

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/report"
)

func unmarshal(raw []byte, to any) error {
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("it does not answer as an API server does: %w", err)
	}
	return nil
}

// summarize counts devices, and finds what is wrong with them.
func summarize(l report.List) (all protocol.Devices, problems []protocol.Problem) {
	all.Resources = []protocol.Resource{}
	var ill [][]report.Device // those that somebody has, by what is wrong with them
	for _, d := range l.Devices {
		if d.Whole {
			continue
		}
		if n := len(all.Resources); n == 0 || all.Resources[n-1].Name != d.Resource {
			all.Resources = append(all.Resources, protocol.Resource{Name: d.Resource})
		}
		count(&all.Counts, d)
		count(&all.Resources[len(all.Resources)-1].Counts, d)
		if d.Health != report.Healthy && len(d.Holders) > 0 {
			i := slices.IndexFunc(ill, func(same []report.Device) bool { return same[0].Health == d.Health && same[0].Reason == d.Reason })
			if i < 0 {
				i, ill = len(ill), append(ill, nil)
			}
			ill[i] = append(ill[i], d)
		}
	}
	for _, same := range ill {
		problems = append(problems, protocol.Problem{About: "devices", Message: illness(same)})
	}
	for _, p := range l.Problems {
		problems = append(problems, protocol.Problem{About: "devices", Message: p.String()})
	}
	return all, problems
}

// mostIll is how many devices are named that have the same.
const mostIll = 4

// illness says once what is wrong with devices that have the same: a plugin that is away has lost all of them, and its reason may be long.
func illness(same []report.Device) string {
	var names []string
	for _, d := range same[:min(len(same), mostIll)] {
		names = append(names, fmt.Sprintf("%s=%s, which %s has", d.Resource, d.Name, d.Holders[0]))
	}
	is := "is"
	if len(same) > 1 {
		is = "are"
	}
	if more := len(same) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s, %s %s: %s", strings.Join(names, "; "), is, same[0].Health, same[0].Reason)
}

func count(n *protocol.Counts, d report.Device) {
	if d.Health == report.Missing {
		n.Missing++
	} else {
		n.Total++
	}
	if d.Health == report.Healthy {
		n.Healthy++
	}
	if len(d.Holders) > 0 {
		n.Granted++
	}
}

// The share of a disk, in per cent, below which its free room is a problem.
const littleRoom = 5

func (t *Teller) disks(s *protocol.Status) {
	for _, dir := range []struct{ name, path string }{{"data", t.cfg.DataDir}, {"run", t.cfg.RunDir}} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir.path, &st); err != nil {
			s.Problems = append(s.Problems, protocol.Problem{About: "disk", Message: fmt.Sprintf("%s: %v", dir.path, err)})
			continue
		}
		block := uint64(st.Bsize) // a block's size is not negative
		d := protocol.Disk{Name: dir.name, Path: dir.path, Size: st.Blocks * block, Free: st.Bavail * block, Used: (st.Blocks - st.Bfree) * block}
		s.Disks = append(s.Disks, d)
		if d.Size > 0 && d.Free*100/d.Size < littleRoom {
			s.Problems = append(s.Problems, protocol.Problem{About: "disk", Message: fmt.Sprintf("the file system of %s has less than %d%% free: remove images ('monopod image prune --all') or give it more room", dir.path, littleRoom)})
		}
	}
}

// setAside are the state files that were damaged when the node started, and were put aside for people to look at.
func setAside(dir string) (problems []protocol.Problem) {
	files, err := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
	if err != nil {
		return nil // the pattern is what it is
	}
	for _, f := range files {
		problems = append(problems, protocol.Problem{About: "state", Message: fmt.Sprintf("%s was damaged and is set aside; a new one was begun: remove it when you have no use for it", f)})
	}
	return problems
}
