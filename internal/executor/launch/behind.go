package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

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
	// Former is the build that went on as the installed program, under its containers; empty: there was nothing to hand over.
	Former string
	// Took is how long that took, until the installed program served.
	Took time.Duration
}

// handoverPatience bounds a handover: what goes on under it has bounds of its own, and recovering many containers takes its time.
const handoverPatience = 2 * time.Minute

// update makes an executor that answers the installed one. gone: it has been ended, and one is to be started.
func update(ctx context.Context, cfg Config, h protocol.HelloResponse) (out Outcome, gone bool, err error) {
	same, err := sameProgram(h.KeeperPID, cfg.Binary)
	if err != nil { // it cannot be looked at: then it is what it says
		same = h.Build == cfg.Build
	}
	if same {
		return Outcome{Build: h.Build}, false, nil
	}
	var why string
	if h.Version < protocol.VersionHandover {
		why = fmt.Sprintf("it speaks protocol version %d, and executors can be handed over from version %d on", h.Version, protocol.VersionHandover)
	} else if out, err = handOver(ctx, cfg, h.Build); err == nil {
		return out, false, nil
	} else {
		why = err.Error()
	}
	gone, err = retire(ctx, cfg, h)
	if err != nil || gone {
		return Outcome{}, gone, err
	}
	return Outcome{Build: h.Build, Behind: behindText(cfg, h, why)}, false, nil
}

// convert makes an executor the installed one that refuses to speak with this program. gone: it has been ended, and one is to be started.
func convert(ctx context.Context, cfg Config, refused *protocol.Error) (out Outcome, gone bool, err error) {
	if out, err = handOver(ctx, cfg, ""); err == nil {
		return out, false, nil
	}
	lasting := endIdle(ctx, cfg)
	if lasting == nil {
		return Outcome{}, true, nil
	}
	return Outcome{}, false, fmt.Errorf("the executor that runs cannot be spoken with (%w), nor be handed over to %s (%w), nor be ended (%w): go back to the version of Monopod that was there "+
		"before, and update when no container runs ('monopod drain'), or reboot the machine, which ends its containers", refused, cfg.Binary, err, lasting)
}

// handOver makes the executor go on as the installed program. former is its build, as far as that is known. An error says why it has stayed what it is.
func handOver(ctx context.Context, cfg Config, former string) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, handoverPatience)
	defer cancel()
	program, err := os.Open(cfg.Binary)
	if err != nil {
		return Outcome{}, err
	}
	defer program.Close()
	begun := time.Now()
	c := client.New(client.Config{Socket: cfg.Socket, Patience: handoverPatience})
	defer c.Close()
	if err := c.Handover(ctx, protocol.HandoverRequest{Env: environment(os.Environ())}, program); err != nil {
		return Outcome{}, err
	}
	h, err := c.Hello(ctx) // of whoever serves now
	if err != nil {
		return Outcome{}, fmt.Errorf("after the handover to %s nobody answers: %w", cfg.Binary, err)
	}
	took := time.Since(begun)
	same, err := sameContentAs(h.KeeperPID, program)
	if err != nil {
		return Outcome{}, err
	}
	if !same {
		return Outcome{}, fmt.Errorf("%s has not got on, and the executor of build %s went on in its place: the log %s says why", cfg.Binary, h.Build, logFile(cfg))
	}
	if former == "" {
		former = "unknown"
	}
	return Outcome{Build: h.Build, Former: former, Took: took}, nil
}

// sameProgram reports whether a process executes what is in a file.
func sameProgram(pid int, path string) (bool, error) {
	installed, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer installed.Close()
	return sameContentAs(pid, installed)
}

// sameContentAs is sameProgram for an open file. Builds may bear the same version and differ, so the bytes are compared; an executor runs in a copy of the
// file, in memory.
func sameContentAs(pid int, installed *os.File) (bool, error) {
	runs, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false, err
	}
	defer runs.Close()
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
	readA, readB := io.NewSectionReader(a, 0, sa.Size()), io.NewSectionReader(b, 0, sb.Size()) // from the beginning, wherever the file stands
	bufA, bufB := make([]byte, 256<<10), make([]byte, 256<<10)
	for {
		n, err := io.ReadFull(readA, bufA)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if m, _ := io.ReadFull(readB, bufB[:n]); m != n || !bytes.Equal(bufA[:n], bufB[:n]) { // shorter: the file is being written
			return false, nil
		}
		if n < len(bufA) {
			return true, nil
		}
	}
}

// retire ends an executor that is not the installed one, if no container runs in it.
func retire(ctx context.Context, cfg Config, h protocol.HelloResponse) (gone bool, err error) {
	c := client.New(client.Config{Socket: cfg.Socket})
	defer c.Close()
	err = c.Shutdown(ctx, protocol.ShutdownRequest{})
	if err == nil {
		return true, nil
	}
	if errdefs.IsFailedPrecondition(err) {
		return false, nil
	}
	return false, fmt.Errorf("end the executor that runs (build %s), which holds no container, for that of build %s: %w", h.Build, cfg.Build, err)
}

func behindText(cfg Config, h protocol.HelloResponse, why string) string {
	installed := "build " + cfg.Build
	if h.Build == cfg.Build {
		installed = "another build of that version"
	}
	return fmt.Sprintf("containers are made by an executor of build %s, which runs since before the update, while %s is %s: it could not be handed over: %s. "+
		"It is replaced when the machine is rebooted, or when Monopod is started while no container runs ('monopod drain', then a restart)", h.Build, cfg.Binary, installed, why)
}
