package announce

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// note is what is on the host, or may be. Version 1.
type note struct {
	Version   int          `json:"version"`
	Addresses []netip.Addr `json:"addresses"`
}

func noteFile(dir string) string { return filepath.Join(dir, "announced.json") }

// readNote is what is written down; nothing is where there is no file.
func readNote(dir string) ([]netip.Addr, error) {
	raw, err := os.ReadFile(noteFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := note{}
	if err = json.Unmarshal(raw, &n); err == nil && n.Version != 1 {
		err = fmt.Errorf("version %d is not known here", n.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read (%w): look which addresses of load balancers are on the host (ip addr), take them away, and remove the file", noteFile(dir), err)
	}
	return n.Addresses, nil
}

// writeNote writes down what is on the host from now on; without any address there is no file.
func writeNote(dir string, addresses []netip.Addr) error {
	if len(addresses) == 0 {
		if err := os.Remove(noteFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := json.Marshal(note{1, slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(noteFile(dir), append(raw, '\n'), 0o600)
}
