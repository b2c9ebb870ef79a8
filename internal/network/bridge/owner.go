package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/internal/network/links"
)

// ownerMark begins the alias of a bridge; the path of its node's state file follows.
const ownerMark = "monopod "

// ownerOf is the alias of the bridge of a node with this state file.
func ownerOf(stateFile string) string { return ownerMark + stateFile }

// Another returns the state file of the other node of this host whose bridge has this name, where own is our own state file. Empty: the bridge is ours,
// nobody's, not there, or of a node whose state is gone, and which nobody can start again.
func Another(bridge, own string) (string, error) {
	link, err := netlink.LinkByName(bridge)
	if links.IsNoLink(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("network: interface %s: %w", bridge, err)
	}
	return anotherIn(link.Attrs().Alias, own), nil
}

// anotherIn reads the mark of a bridge. One that was cut names no file.
func anotherIn(alias, own string) string {
	path, marked := strings.CutPrefix(alias, ownerMark)
	if !marked || path == own || !filepath.IsAbs(path) {
		return ""
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}
