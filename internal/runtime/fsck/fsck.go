package fsck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/host/tree"
	imagefsck "monopod.dev/monopod/internal/image/fsck"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/runtime/sandbox"
	"monopod.dev/monopod/internal/state"
)

// Options says what to check.
type Options struct {
	// DataDir and RunDir are the node's.
	DataDir, RunDir string
	// Images is what was found in the image store.
	Images *imagefsck.Result
}

// Result is what a check has found.
type Result struct {
	Findings              []fsck.Finding
	Containers, Sandboxes int
}

// Database is the runtime's state file.
func Database(dataDir string) string { return filepath.Join(dataDir, "state", "runtime.db") }

// facts are what the tables, the folders and the kernel say. Folders are by their names, which are ids.
type facts struct {
	boot       string
	images     *imagefsck.Result
	containers map[string]container.Record
	sandboxes  map[string]sandbox.Record
	// unread are records that cannot be read: their containers and sandboxes are left alone.
	unreadContainers, unreadSandboxes records.Unread
	// addresses are by the sandbox's id; cni are the sandboxes that plugins have connected.
	addresses map[ids.SandboxID]lease.Held
	cni       map[string]bool
	links     map[string]bool // the host's network interfaces

	layers, bundles, pods map[string]folder
	hasRunDir             bool
}

// folder is one of a container or a sandbox.
type folder struct {
	path  string
	upper bool // of a writable layer: the files are there
	used  bool // something is mounted in it, or from it
}

// Check looks at what a runtime that does not run has stored. It changes nothing. Damage is no error, but a finding.
func Check(o Options) (*Result, error) {
	f := &facts{images: o.Images, containers: map[string]container.Record{}, sandboxes: map[string]sandbox.Record{}, addresses: map[ids.SandboxID]lease.Held{}, cni: map[string]bool{}}
	findings, known, err := f.readDatabase(Database(o.DataDir))
	if err != nil {
		return nil, err
	}
	agent, _, err := readRecords(filepath.Join(o.DataDir, "state", "agent.db"), "the ledger of the devices")
	if err != nil {
		return nil, err
	}
	findings = append(findings, agent...)
	if !known {
		return &Result{Findings: findings}, nil // what has owners and what has none cannot be told
	}
	if f.boot, err = proc.BootID(); err != nil {
		return nil, err
	}
	copies, err := f.readFolders(o)
	if err != nil {
		return nil, err
	}
	findings = append(findings, copies...)
	if f.links, err = links(); err != nil {
		return nil, err
	}
	return &Result{Findings: append(findings, judge(f)...), Containers: len(f.containers), Sandboxes: len(f.sandboxes)}, nil
}

// readDatabase reads the runtime's records. known is false when the file is damaged.
func (f *facts) readDatabase(path string) (findings []fsck.Finding, known bool, err error) {
	findings, known, err = readRecords(path, "the records of containers, sandboxes and addresses")
	if err != nil || !known {
		return findings, known, err
	}
	db, _, err := state.Open(state.Config{Path: path, ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return findings, true, nil
	}
	if err != nil {
		return findings, false, err
	}
	defer db.Close() // nothing was written
	var errs [3]error
	f.containers, errs[0] = state.NewTable[container.Record](db, "containers").List()
	f.sandboxes, errs[1] = state.NewTable[sandbox.Record](db, "sandboxes").List()
	f.addresses, errs[2] = lease.ReadHeld(db)
	f.unreadContainers, f.unreadSandboxes = records.UnreadOf(errs[0]), records.UnreadOf(errs[1])
	for _, err := range errs {
		keys, only := state.Undecodable(err)
		if !only {
			return findings, false, err
		}
		for _, key := range keys {
			findings = append(findings, unreadable(path, key, err))
		}
	}
	attached, err := state.NewTable[json.RawMessage](db, "network-cni").List()
	for id := range attached {
		f.cni[id] = true
	}
	if _, only := state.Undecodable(err); !only {
		return findings, false, err
	}
	return findings, true, nil
}

func unreadable(path, key string, err error) fsck.Finding {
	return fsck.Finding{Severity: fsck.Damaged, Kind: "record", Object: path + " " + key, Problem: fmt.Sprintf("a record cannot be read: %v", err),
		Repair: "none: what it describes is left as it is"}
}

// readRecords proves that a state file is whole, and that its records are what they should be as far as everybody can tell: JSON.
func readRecords(path, holds string) (findings []fsck.Finding, known bool, err error) {
	err = fsck.ViewDatabase(path, func(tx *bolt.Tx) error {
		return tx.ForEach(func(table []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				if string(table) != "meta" && !json.Valid(v) {
					findings = append(findings, fsck.Finding{Severity: fsck.Damaged, Kind: "record", Object: fmt.Sprintf("%s %s/%s", path, table, k),
						Problem: "it is no JSON", Repair: "none: what it describes is left as it is"})
				}
				return nil
			})
		})
	})
	switch {
	case errdefs.IsNotFound(err):
		return nil, true, nil
	case errdefs.IsDataLoss(err):
		return []fsck.Finding{{Severity: fsck.Damaged, Kind: "database", Object: path, Problem: fsck.Said(err),
			Repair: "none: it holds " + holds + "; the next start of the node sets it aside, and takes what lives from the executor and the folders of this boot"}}, false, nil
	}
	return findings, true, err
}

// readFolders reads the folders, and the records of which there is only the copy: of what is being made, or was when the node
// was killed.
func (f *facts) readFolders(o Options) (findings []fsck.Finding, err error) {
	if _, err := os.Stat(o.RunDir); err == nil {
		f.hasRunDir = true
	}
	for _, d := range []struct {
		into *map[string]folder
		dir  string
	}{{&f.layers, filepath.Join(o.DataDir, "containers")}, {&f.bundles, filepath.Join(o.RunDir, "containers")}, {&f.pods, filepath.Join(o.RunDir, "sandboxes")}} {
		if *d.into, err = folders(d.dir); err != nil {
			return nil, err
		}
	}
	containers, cerr := records.ReadCopies[container.Record](filepath.Join(o.RunDir, "containers"))
	for id, rec := range containers {
		if _, ok := f.containers[id]; !ok && string(rec.ID) == id {
			f.containers[id] = rec
		}
	}
	sandboxes, serr := records.ReadCopies[sandbox.Record](filepath.Join(o.RunDir, "sandboxes"))
	for id, rec := range sandboxes {
		if _, ok := f.sandboxes[id]; !ok && string(rec.ID) == id {
			f.sandboxes[id] = rec
		}
	}
	f.unreadContainers, f.unreadSandboxes = f.unreadContainers.With(cerr), f.unreadSandboxes.With(serr)
	for _, err := range []error{cerr, serr} {
		if err != nil {
			findings = append(findings, fsck.Finding{Severity: fsck.Damaged, Kind: "record", Object: o.RunDir, Problem: err.Error(),
				Repair: "none: the record in the database is what holds"})
		}
	}
	return findings, nil
}

func folders(dir string) (map[string]folder, error) {
	out := map[string]folder{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == tree.BinName { // what is in it is being removed
			continue
		}
		d := folder{path: filepath.Join(dir, e.Name())}
		if info, err := os.Lstat(filepath.Join(d.path, "upper")); err == nil && info.IsDir() {
			d.upper = true
		}
		mounted, err := mount.Below(d.path)
		if err != nil {
			return nil, err
		}
		// An overlay names its writable layer in its options.
		d.used = len(mounted) > 0 || strings.Contains(string(table), d.path+"/upper")
		out[e.Name()] = d
	}
	return out, nil
}

func links() (map[string]bool, error) {
	all, err := net.Interfaces()
	out := map[string]bool{}
	for _, l := range all {
		out[l.Name] = true
	}
	return out, err
}

// Repair does what the findings' repairs are, as far as they are not of the image store.
func Repair(ctx context.Context, o Options, findings []fsck.Finding) (err error) {
	records := map[string][]string{}
	for _, f := range findings {
		switch f.Fix.Action {
		case fsck.RemoveFolder:
			err = errors.Join(err, tree.Remove(ctx, f.Fix.Target)) // refuses what something is mounted in
		case fsck.DropRecord:
			records[f.Fix.Table] = append(records[f.Fix.Table], f.Fix.Target)
		}
	}
	if len(records) == 0 {
		return err
	}
	db, _, oerr := state.Open(state.Config{Path: Database(o.DataDir)})
	if oerr != nil {
		return errors.Join(err, oerr)
	}
	return errors.Join(err, db.Update(func(tx *state.Tx) error {
		for table, keys := range records {
			for _, key := range keys {
				if err := state.NewTable[json.RawMessage](db, table).DeleteTx(tx, key); err != nil {
					return err
				}
			}
		}
		return nil
	}), db.Close())
}
