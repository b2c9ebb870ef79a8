package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/protocol"
)

// Outcome is which executor serves.
type Outcome struct {
	// Build is the version of the executor that runs.
	Build string
	// Behind says why the executor that runs is not the program that is installed, and what makes it so; empty: it is.
	Behind string
}

// sameProgram reports whether a process executes what is in a file. Builds may bear the same version and differ, so the bytes are compared; an
// executor runs in a copy of the file, in memory.
func sameProgram(pid int, path string) (bool, error) {
	runs, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false, err
	}
	defer runs.Close()
	installed, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer installed.Close()
	return sameContent(runs, installed)
}

func sameContent(a, b *os.File) (bool, error) {
	sa, err := a.Stat()
	if err != nil {
		return false, err
	}
	sb, err := b.Stat()
	if err != nil || sa.Size() != sb.Size() {
		return false, err
	}
	bufA, bufB := make([]byte, 256<<10), make([]byte, 256<<10)
	for {
		n, err := io.ReadFull(a, bufA)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if m, _ := io.ReadFull(b, bufB[:n]); m != n || !bytes.Equal(bufA[:n], bufB[:n]) { // shorter: the file is being written
			return false, nil
		}
		if n < len(bufA) {
			return true, nil
		}
	}
}

// retire ends an executor that is not the installed one, if it holds no container. It says why not otherwise.
func retire(ctx context.Context, cfg Config, h protocol.HelloResponse) (gone bool, behind string, err error) {
	c := client.New(client.Config{Socket: cfg.Socket})
	defer c.Close()
	err = c.Shutdown(ctx, protocol.ShutdownRequest{})
	if err == nil {
		return true, "", nil
	}
	if errdefs.IsFailedPrecondition(err) {
		return false, behindText(cfg, h), nil
	}
	return false, "", fmt.Errorf("end the executor that runs (build %s), which holds no container, for that of build %s: %w", h.Build, cfg.Build, err)
}

func behindText(cfg Config, h protocol.HelloResponse) string {
	installed := "build " + cfg.Build
	if h.Build == cfg.Build {
		installed = "another build of that version"
	}
	return fmt.Sprintf("containers are made by an executor of build %s, which runs since before the update, while %s is %s: "+
		"it is replaced when the machine is rebooted, or when Monopod is started while it holds no container ('monopod drain', then a restart)", h.Build, cfg.Binary, installed)
}
