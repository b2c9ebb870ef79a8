// Package numa tells the host's NUMA nodes: /sys/devices/system/node (Documentation/ABI/stable/sysfs-devices-node).
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Node is a NUMA node.
type Node struct {
	// ID is the kernel's number; numbers may have gaps.
	ID int
	// Distances are those to all nodes that are online, itself too, in the order of their IDs.
	Distances []int
}

const root = "/sys/devices/system/node"

// Nodes returns the nodes that are online, by ID. A kernel without NUMA has none.
func Nodes() ([]Node, error) { return nodesIn(root) }

func nodesIn(dir string) ([]Node, error) {
	online, err := os.ReadFile(filepath.Join(dir, "online"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids, err := parseList(strings.TrimSpace(string(online)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "online"), err)
	}
	var nodes []Node
	for _, id := range ids {
		path := filepath.Join(dir, fmt.Sprintf("node%d", id), "distance")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		n := Node{ID: id}
		for _, word := range strings.Fields(string(text)) {
			d, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no distance", path, word)
			}
			n.Distances = append(n.Distances, d)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// maxID is above what any kernel is built for (CONFIG_NODES_SHIFT is 10 at most).
const maxID = 1 << 10

// parseList reads the kernel's list format, such as "0-1,4".
func parseList(text string) (ids []int, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to > maxID {
			return nil, fmt.Errorf("%q is no list of nodes, such as 0-1,4", text)
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
