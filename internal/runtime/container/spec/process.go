package spec

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Process reads a container's own process from its bundle. It comes early in a specification of which the greater part is the
// seccomp profile, so the rest is neither read nor parsed.
func Process(bundle string) (*specs.Process, error) {
	f, err := os.Open(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	if _, err := d.Token(); err != nil { // the opening brace
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "process" {
			var other json.RawMessage
			if err := d.Decode(&other); err != nil {
				return nil, err
			}
			continue
		}
		var p *specs.Process
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("it has no process: %w", errdefs.ErrInternal)
}
