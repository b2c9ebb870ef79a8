package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/fsck"
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

// FsckReport is what a check has found.
type FsckReport struct {
	// Findings, the damaged first within the image store and within the runtime.
	Findings []fsck.Finding `json:"findings"`
	// Remaining are those that a repair has left; nil without one.
	Remaining []fsck.Finding `json:"remaining,omitempty"`
	Repaired  bool           `json:"repaired"` // a repair was done

	Images     int  `json:"images"`
	Layers     int  `json:"layers"`
	Containers int  `json:"containers"`
	Sandboxes  int  `json:"sandboxes"`
	Deep       bool `json:"deep"`
}

// Fsck proves that what a stopped node has in its directories is whole, and repairs it if asked to. A node that runs is an error
// that names it.
func Fsck(ctx context.Context, o Options, how FsckOptions) (FsckReport, error) {
	report := FsckReport{Findings: []fsck.Finding{}, Deep: how.Deep}
	if _, err := os.Stat(o.Config.DataDir); errors.Is(err, os.ErrNotExist) {
		return report, fmt.Errorf("there is no data directory %s; name the node's with --data-dir", o.Config.DataDir)
	}
	unlock, err := stopped(o.Config, how.Repair)
	if err != nil {
		return report, err
	}
	defer unlock()
	if err := inspect(ctx, o, how, &report); err != nil || !how.Repair || len(report.Findings) == 0 {
		return report, err
	}
	images, runtime := fsckOptions(o, false)
	err = errors.Join(imagefsck.Repair(ctx, images, report.Findings), runtimefsck.Repair(ctx, runtime, report.Findings))
	report.Repaired = true
	after := FsckReport{Findings: []fsck.Finding{}}
	err = errors.Join(err, inspect(ctx, o, how, &after))
	report.Remaining = after.Findings
	return report, err
}

func fsckOptions(o Options, deep bool) (imagefsck.Options, runtimefsck.Options) {
	c := o.Config
	return imagefsck.Options{Root: filepath.Join(c.DataDir, "images"), Deep: deep, Log: o.Log},
		runtimefsck.Options{DataDir: c.DataDir, RunDir: c.RunDir}
}

func inspect(ctx context.Context, o Options, how FsckOptions, report *FsckReport) error {
	images, runtime := fsckOptions(o, how.Deep)
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

// stopped takes the locks of the node, so that no part of it runs meanwhile. To look it makes no file.
func stopped(c *v1alpha1.NodeConfiguration, write bool) (unlock func(), err error) {
	dir := c.RunDir
	if !write {
		unlock, err = lockIdle(dir)
	} else if err = private.Passage(dir); err == nil {
		unlock, err = lock(dir, allParts...)
	}
	if runs := (*runsError)(nil); errors.As(err, &runs) {
		return nil, fmt.Errorf("a node (process %s, role %s) runs with the run directory %s: stop it first; its pods run on meanwhile (lock %s)",
			runs.pid, runs.part, runs.dir, runs.lock)
	}
	return unlock, err
}
