package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
)

// Policy says what is done about NUMA nodes; the names are those of a kubelet's topologyManagerPolicy.
type Policy string

// The policies. The zero value is None.
const (
	None           Policy = "none"
	BestEffort     Policy = "best-effort"
	Restricted     Policy = "restricted"
	SingleNUMANode Policy = "single-numa-node"
)

// Scope says whose devices are aligned with each other; the names are those of a kubelet's topologyManagerScope.
type Scope string

// The scopes. The zero value is PerContainer.
const (
	PerContainer Scope = "container"
	PerPod       Scope = "pod"
)

// The options of a policy, by the names of a kubelet's topologyManagerPolicyOptions.
const (
	// OptionClosest, "true" or "false", takes nodes near to each other where more than one is needed.
	OptionClosest = "prefer-closest-numa-nodes"
	// OptionMaxNodes is the number of NUMA nodes above which a host is refused, DefaultMaxNodes or more.
	OptionMaxNodes = "max-allowable-numa-nodes"
)

// DefaultMaxNodes is how many NUMA nodes a host may have without OptionMaxNodes, and MaxNodes how many it may have with it.
const (
	DefaultMaxNodes = 8
	MaxNodes        = 16
)

// Node is a NUMA node of the host.
type Node struct {
	// ID is the kernel's number of the node. Numbers may have gaps.
	ID int
	// Distances are those to all nodes of the host, itself too, in the order of their IDs: /sys/devices/system/node/node<ID>/distance. They are
	// needed only with OptionClosest.
	Distances []int
}

// Config is what an Aligner is made of.
type Config struct {
	Policy Policy
	Scope  Scope
	// Options are values by the names of the options.
	Options map[string]string
	// Nodes are the host's NUMA nodes, in any order. A host without any has nothing to align.
	Nodes []Node
}

// Aligner decides for one host and one policy. It does not change, and is safe for concurrent use. The zero value has the policy None.
type Aligner struct {
	policy Policy
	scope  Scope
	// ids are the nodes' numbers in ascending order: the bits of a Mask.
	ids []int
	// distances are by positions in ids; nil where they do not matter.
	distances [][]int
}

// New checks the configuration. Its error is an errdefs.ErrInvalidArgument where that is wrong by itself, and an errdefs.ErrFailedPrecondition
// where it does not fit the host.
func New(cfg Config) (*Aligner, error) {
	a := &Aligner{policy: cfg.Policy, scope: cfg.Scope}
	if a.policy == "" {
		a.policy = None
	}
	if a.scope == "" {
		a.scope = PerContainer
	}
	if known := []Policy{None, BestEffort, Restricted, SingleNUMANode}; !slices.Contains(known, a.policy) {
		return nil, fmt.Errorf("topology policy %q is not one of %q: %w", a.policy, known, errdefs.ErrInvalidArgument)
	}
	if known := []Scope{PerContainer, PerPod}; !slices.Contains(known, a.scope) {
		return nil, fmt.Errorf("topology scope %q is not one of %q: %w", a.scope, known, errdefs.ErrInvalidArgument)
	}
	opts, err := parseOptions(cfg.Options)
	if err != nil {
		return nil, err
	}
	if a.policy == None {
		return a, nil // whatever the host is like, nothing of it is used
	}
	nodes := slices.SortedFunc(slices.Values(cfg.Nodes), func(x, y Node) int { return cmp.Compare(x.ID, y.ID) })
	if err := checkNodes(a.policy, nodes, opts); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		a.ids = append(a.ids, n.ID)
	}
	// Between single nodes there is no distance to compare.
	if opts.closest && a.policy != SingleNUMANode {
		a.distances, err = readDistances(nodes)
	}
	return a, err
}

// Policy is the policy in force.
func (a *Aligner) Policy() Policy { return cmp.Or(a.policy, None) }

// Scope is the scope in force.
func (a *Aligner) Scope() Scope { return cmp.Or(a.scope, PerContainer) }

type options struct {
	closest  bool
	maxNodes int
}

func parseOptions(values map[string]string) (options, error) {
	opts := options{maxNodes: DefaultMaxNodes}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		var err error
		switch name {
		case OptionClosest:
			if opts.closest, err = strconv.ParseBool(value); err != nil {
				return opts, fmt.Errorf("topology policy option %s: %q is neither true nor false: %w", name, value, errdefs.ErrInvalidArgument)
			}
		case OptionMaxNodes:
			if opts.maxNodes, err = strconv.Atoi(value); err != nil || opts.maxNodes < DefaultMaxNodes {
				return opts, fmt.Errorf("topology policy option %s: %q is no number from %d on: %w", name, value, DefaultMaxNodes, errdefs.ErrInvalidArgument)
			}
		default:
			return opts, fmt.Errorf("topology policy option %q is not one of %q: %w", name, []string{OptionClosest, OptionMaxNodes}, errdefs.ErrInvalidArgument)
		}
	}
	return opts, nil
}

// checkNodes wants nodes in the order of their IDs.
func checkNodes(policy Policy, nodes []Node, opts options) error {
	for i, n := range nodes {
		if n.ID < 0 || i > 0 && nodes[i-1].ID == n.ID {
			return fmt.Errorf("NUMA node %d of the host is negative or listed twice: %w", n.ID, errdefs.ErrInvalidArgument)
		}
	}
	switch have := len(nodes); {
	case have > MaxNodes:
		return fmt.Errorf("the host has %d NUMA nodes, and topology policy %s can weigh at most %d, whatever %s says (%d): set the policy to %s: %w",
			have, policy, MaxNodes, OptionMaxNodes, opts.maxNodes, None, errdefs.ErrFailedPrecondition)
	case have > opts.maxNodes:
		return fmt.Errorf("the host has %d NUMA nodes, and topology policy %s may weigh at most %d: set its option %s to %d, or the policy to %s: %w",
			have, policy, opts.maxNodes, OptionMaxNodes, have, None, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// readDistances wants nodes in the order of their IDs.
func readDistances(nodes []Node) ([][]int, error) {
	var all [][]int
	for _, n := range nodes {
		if len(n.Distances) != len(nodes) {
			return nil, fmt.Errorf("NUMA node %d of the host has %d distances where %s needs one to each of %d nodes: set the option to false: %w",
				n.ID, len(n.Distances), OptionClosest, len(nodes), errdefs.ErrFailedPrecondition)
		}
		all = append(all, slices.Clone(n.Distances))
	}
	return all, nil
}
