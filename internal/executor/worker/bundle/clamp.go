//go:build cgo

package bundle

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/ocicmd"
	"monopod.dev/monopod/internal/kit/ids"
)

// hostLimits is what this process may pass on to a container. On a restricted host (a container itself, a locked-down
// machine) that is less than a specification may ask for; what is out of reach is clamped rather than refused.
type hostLimits struct {
	caps        map[string]bool // the permitted set
	anyRlimit   bool            // CAP_SYS_RESOURCE: limits may be raised, oom_score_adj lowered
	hard        map[string]uint64
	oomScoreAdj int // the lowest value that may be set without CAP_SYS_RESOURCE
}

func readHostLimits() (hostLimits, error) {
	h := hostLimits{caps: map[string]bool{}, hard: map[string]uint64{}}
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		return h, fmt.Errorf("the executor's own capabilities: %w", err)
	}
	for _, c := range capability.ListKnown() {
		h.caps["CAP_"+strings.ToUpper(c.String())] = own.Get(capability.PERMITTED, c)
	}
	h.anyRlimit = h.caps["CAP_SYS_RESOURCE"]
	for name, n := range ocicmd.Rlimits {
		var l unix.Rlimit
		if err := unix.Getrlimit(n, &l); err == nil {
			h.hard[name] = l.Max
		}
	}
	if raw, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		h.oomScoreAdj, _ = strconv.Atoi(strings.TrimSpace(string(raw))) // 0 is the right guess for what cannot be read
	}
	return h, nil
}

// clamped names what was lowered: the kind, and what became of it.
type clamped struct{ kind, what string }

// clamp lowers p to what the host allows, and says what it changed.
func (h hostLimits) clamp(p *specs.Process) (changes []clamped) {
	if c := p.Capabilities; c != nil {
		dropped := map[string]bool{}
		keep := func(list []string) []string {
			return slices.DeleteFunc(slices.Clone(list), func(name string) bool {
				has, known := h.caps[strings.ToUpper(name)]
				if known && !has {
					dropped[strings.ToUpper(name)] = true
					return true
				}
				return false
			})
		}
		p.Capabilities = &specs.LinuxCapabilities{Bounding: keep(c.Bounding), Effective: keep(c.Effective),
			Permitted: keep(c.Permitted), Inheritable: keep(c.Inheritable), Ambient: keep(c.Ambient)}
		for name := range dropped {
			changes = append(changes, clamped{"capability " + name, "not granted: the executor does not have it"})
		}
	}
	if h.anyRlimit {
		return changes
	}
	limits := slices.Clone(p.Rlimits)
	for i, l := range limits {
		hard, known := h.hard[l.Type]
		if known && l.Hard > hard {
			limits[i].Hard, limits[i].Soft = hard, min(l.Soft, hard)
			changes = append(changes, clamped{l.Type, fmt.Sprintf("hard limit %d instead of %d: the executor may not raise it", hard, l.Hard)})
		}
	}
	p.Rlimits = limits
	if p.OOMScoreAdj != nil && *p.OOMScoreAdj < h.oomScoreAdj {
		changes = append(changes, clamped{"oom_score_adj", fmt.Sprintf("%d instead of %d: the executor may not lower it", h.oomScoreAdj, *p.OOMScoreAdj)})
		adj := h.oomScoreAdj
		p.OOMScoreAdj = &adj
	}
	return changes
}

// ClampProcess clamps the process, and says each kind of clamping once in the worker's life.
func (r *Reader) ClampProcess(id ids.ContainerID, p *specs.Process) {
	for _, c := range r.host.clamp(p) {
		if _, said := r.clamped.LoadOrStore(c.kind, true); !said {
			r.log.Warn("restricted host: a container gets less than it asked for (said once)", "container", id, "what", c.kind, "effect", c.what)
		}
	}
}
