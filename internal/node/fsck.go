package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/private"
	imagefsck "monopod.dev/monopod/internal/image/fsck"
	runtimefsck "monopod.dev/monopod/internal/runtime/fsck"
)

// FsckOptions says how to check.
type FsckOptions struct {
	// Deep reads every file of every layer.
	Deep bool
	// Repair does what can be done; without it nothing is changed.
	Repair bool
}

// Finding is one thing that is wrong.
type Finding = imagefsck.Finding

// FsckReport is what a check has found.
type FsckReport struct {
	// Findings, the damaged first within the image store and within the runtime.
	Findings []Finding `json:"findings"`
	// Remaining are those that a repair has left; nil without one.
	Remaining []Finding `json:"remaining,omitempty"`
	Repaired  bool      `json:"repaired"` // a repair was done

	Images     int  `json:"images"`
	Layers     int  `json:"layers"`
	Containers int  `json:"containers"`
	Sandboxes  int  `json:"sandboxes"`
	Deep       bool `json:"deep"`
}

// Fsck proves that what a stopped node has in its directories is whole, and repairs it if asked to. A node that runs is an error
// that names it.
func Fsck(ctx context.Context, o Options, how FsckOptions) (FsckReport, error) {
	report := FsckReport{Findings: []Finding{}, Deep: how.Deep}
	if _, err := os.Stat(o.Config.DataDir); errors.Is(err, os.ErrNotExist) {
		return report, fmt.Errorf("there is no data directory %s; name the node's with --data-dir", o.Config.DataDir)
	}
	unlock, err := o.stopped(how.Repair)
	if err != nil {
		return report, err
	}
	defer unlock()
	if err := o.inspect(ctx, how, &report); err != nil || !how.Repair || len(report.Findings) == 0 {
		return report, err
	}
	images, runtime := o.fsckOptions(false)
	err = errors.Join(imagefsck.Repair(ctx, images, report.Findings), runtimefsck.Repair(runtime, report.Findings))
	report.Repaired = true
	after := FsckReport{Findings: []Finding{}}
	err = errors.Join(err, o.inspect(ctx, how, &after))
	report.Remaining = after.Findings
	return report, err
}

func (o *Options) fsckOptions(deep bool) (imagefsck.Options, runtimefsck.Options) {
	c := o.Config
	return imagefsck.Options{Root: filepath.Join(c.DataDir, "images"), Deep: deep, Log: o.Log},
		runtimefsck.Options{DataDir: c.DataDir, RunDir: c.RunDir}
}

func (o *Options) inspect(ctx context.Context, how FsckOptions, report *FsckReport) error {
	images, runtime := o.fsckOptions(how.Deep)
	found, err := imagefsck.Check(ctx, images)
	if err != nil {
		return err
	}
	runtime.Images = found
	others, err := runtimefsck.Check(runtime)
	if err != nil {
		return err
	}
	report.Findings = append(append(report.Findings, found.Findings...), others.Findings...)
	report.Images, report.Layers, report.Containers, report.Sandboxes = found.Images, found.Layers, others.Containers, others.Sandboxes
	return nil
}

// stopped takes the lock of the node, so that none runs meanwhile. To look it makes no file: a run directory without a lock is one
// that no node has used in this boot.
func (o *Options) stopped(write bool) (unlock func(), err error) {
	path := filepath.Join(o.Config.RunDir, "monopod.lock")
	if write {
		if err := private.Passage(o.Config.RunDir); err != nil {
			return nil, err
		}
		return lock(path)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			holder, _ := os.ReadFile(path)
			return nil, fmt.Errorf("a node (process %s) runs with this run directory: stop it first; its pods run on meanwhile (lock %s)",
				strings.TrimSpace(string(holder)), path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
