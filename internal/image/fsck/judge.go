package fsck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
)

// What repairs do, in words.
const (
	byPull  = "its name is dropped; it is to be pulled again"
	byStart = "removed (the next start of the node does so, too)"
)

// verdict is what is made of the facts.
type verdict struct {
	*facts
	findings []fsck.Finding
	badBlobs map[digest.Digest]string // why
	// badLayers are snapshots which images must not be made of, by their names: why.
	badLayers map[string]string
	held      held
}

// judge says what is wrong. It is a pure function.
func judge(f *facts) *verdict {
	v := &verdict{facts: f, badBlobs: map[digest.Digest]string{}, badLayers: map[string]string{}, findings: slices.Clone(f.broken)}
	if len(f.broken) > 0 {
		return v // what is there has owners that are not known
	}
	v.judgeBlobs()
	v.judgeLayers()
	v.held = mark(f)
	v.judgeLeases()
	v.judgeNames()
	v.judgeUnheld()
	v.judgeDirectories()
	fsck.Sort(v.findings)
	return v
}

func (v *verdict) add(f fsck.Finding) { v.findings = append(v.findings, f) }

func (v *verdict) judgeBlobs() {
	for d, rec := range v.blobs {
		file, there := v.files[d]
		switch {
		case !there:
			v.badBlobs[d] = "it has no file"
		case file.actual != d:
			v.badBlobs[d] = fmt.Sprintf("its content has the digest %s", file.actual)
		case file.size != rec.size:
			v.badBlobs[d] = fmt.Sprintf("it has %d bytes, it should have %d", file.size, rec.size)
		}
	}
}

// judgeLayers compares three tables and the directories: what the metadata knows, what the snapshotter knows, what is there.
func (v *verdict) judgeLayers() {
	for name, rec := range v.layers {
		snap, known := v.snapshots[rec.snapshot]
		if known && snap.kind == snapshots.KindActive || strings.HasPrefix(name, store.UnpackKey) {
			v.add(fsck.Left("layer", name, "it was being unpacked when the node was killed", byStart, fsck.Fix{Action: fsck.Open}))
			continue
		}
		if why := v.layerFault(name, rec, snap, known); why != "" {
			v.badLayers[name] = why
		}
	}
	for name := range v.layers { // what lies on a bad one is bad
		for below, n := name, 0; below != "" && n <= len(v.layers); below, n = v.layers[below].parent, n+1 {
			if why := v.badLayers[below]; why != "" && v.badLayers[name] == "" {
				v.badLayers[name] = fmt.Sprintf("the layer below it, %s, is damaged: %s", below, why)
			}
		}
	}
}

func (v *verdict) layerFault(name string, rec layerRecord, snap snapshotRecord, known bool) string {
	if !known {
		return "the snapshotter does not know it"
	}
	below := ""
	if rec.parent != "" {
		parent, ok := v.layers[rec.parent]
		if !ok {
			return fmt.Sprintf("the layer below it, %s, is missing", rec.parent)
		}
		below = parent.snapshot
	}
	if snap.parent != below {
		return fmt.Sprintf("the snapshotter has it on %q, it should be on %q", snap.parent, below)
	}
	if diff := rec.labels[store.DiffLabel]; diff != "" {
		if want := chainOf(rec.parent, diff); want != name {
			return fmt.Sprintf("on its parent the layer %s would be %s", diff, want)
		}
	}
	dir := v.dirs[snap.id]
	switch {
	case dir == nil || !dir.files:
		return fmt.Sprintf("its directory (overlay/snapshots/%s/fs) is missing", snap.id)
	case dir.fault != "":
		return dir.fault
	}
	return ""
}

// chainOf is the name of a layer on another one (image-spec, config.md: Layer ChainID).
func chainOf(parent, diff string) string {
	if parent == "" {
		return diff
	}
	return identity.ChainID([]digest.Digest{digest.Digest(parent), digest.Digest(diff)}).String()
}

// judgeLeases looks for leases that nobody will end.
func (v *verdict) judgeLeases() {
	for _, l := range v.leases {
		drop := fsck.Fix{Action: fsck.DropLease, Target: l.id}
		switch {
		case l.PinnedImage != "":
			if why := v.imageFault(digest.Digest(l.PinnedImage)); why != "" {
				v.add(fsck.Damage("pin", string(l.PinUser), fmt.Sprintf("the image %s that this container holds is not whole: %s", l.PinnedImage, why),
					"none: remove the container, it cannot be relied on", fsck.Fix{}))
			}
		case l.Transfer == "":
			v.add(fsck.Left("lease", l.id, "nothing is known of its owner", "it is dropped", drop))
		case !v.resumable(l.Boot, l.created):
			v.add(fsck.Left("lease", l.id, fmt.Sprintf("the transfer of %s ended long ago, or in an earlier boot", l.Transfer), byStart, fsck.Fix{Action: fsck.Open}))
		default:
			if why := v.firstBad(l); why != "" {
				v.add(fsck.Damage("lease", l.id, fmt.Sprintf("the interrupted transfer of %s has brought what is not whole: %s", l.Transfer, why), "it is dropped", drop))
			}
		}
	}
}

// resumable says whether a later transfer may go on with what an earlier one has brought.
func (v *verdict) resumable(boot string, since time.Time) bool {
	return boot == v.boot && v.now.Sub(since) < store.ResumeWindow
}

func (v *verdict) firstBad(l lease) string {
	reached := reach(v.facts, l.holds)
	for d, why := range v.badBlobs {
		if reached.blobs[d] {
			return fmt.Sprintf("blob %s: %s", d, why)
		}
	}
	for name, why := range v.badLayers {
		if reached.layers[name] {
			return fmt.Sprintf("layer %s: %s", name, why)
		}
	}
	return ""
}

// judgeUnheld names what the metadata has and nothing holds, and what is damaged.
func (v *verdict) judgeUnheld() {
	for d, why := range v.badBlobs {
		v.add(fsck.Damage("blob", d.String(), why, v.goesWithItsUsers(v.held.blobs[d]), fsck.Fix{Action: fsck.Open}))
	}
	for name, why := range v.badLayers {
		v.add(fsck.Damage("layer", name, why, v.goesWithItsUsers(v.held.layers[name]), fsck.Fix{Action: fsck.Open}))
	}
	for d := range v.blobs {
		if !v.held.blobs[d] && v.badBlobs[d] == "" {
			v.add(fsck.Left("blob", d.String(), "no image, container or transfer holds it", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
	for name, rec := range v.layers {
		half := v.snapshots[rec.snapshot].kind == snapshots.KindActive || strings.HasPrefix(name, store.UnpackKey) // told already
		if !half && !v.held.layers[name] && v.badLayers[name] == "" {
			v.add(fsck.Left("layer", name, "no image, container or transfer holds it", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
	for ref := range v.ingests {
		if !v.held.ingests[ref] {
			v.add(fsck.Left("ingest", ref, "no transfer holds it", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
}

func (v *verdict) goesWithItsUsers(isHeld bool) string {
	if isHeld {
		return "removed with the last image and container that has it"
	}
	return byStart
}

// judgeDirectories names what is on the disk and in no database, and records of transfers without a file.
func (v *verdict) judgeDirectories() {
	for d := range v.files {
		if _, known := v.blobs[d]; !known {
			v.add(fsck.Left("blob", d.String(), "the metadata does not know this file", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
	keys := map[string]bool{}
	for _, rec := range v.layers {
		keys[rec.snapshot] = true
	}
	dirs := map[string]bool{}
	for key, snap := range v.snapshots {
		dirs[snap.id] = true
		if !keys[key] {
			v.add(fsck.Left("layer", key, "the metadata does not know this snapshot", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
	for id, dir := range v.dirs {
		if !dirs[id] {
			v.add(fsck.Left("directory", dir.path, "no layer has it", byStart, fsck.Fix{Action: fsck.Open}))
			continue
		}
		v.judgeRecipe(id, dir)
	}
	backend := map[string]bool{}
	for _, ref := range v.ingests {
		backend[ref] = true
	}
	for ref, path := range v.transfers {
		if !backend[ref] {
			v.add(fsck.Left("ingest", path, "the metadata does not know it", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
	for _, d := range v.downloads {
		if !v.resumable(d.boot, d.since) {
			v.add(fsck.Left("download", d.path, "no pull has gone on with it for long, or since an earlier boot", byStart, fsck.Fix{Action: fsck.Open}))
		}
	}
	for _, path := range v.strays {
		v.add(fsck.Left("directory", path, "nothing of the store has this name", "removed", fsck.Fix{Action: fsck.RemovePath, Target: path}))
	}
}

// judgeRecipe: without its recipe a layer can be used, and not saved.
func (v *verdict) judgeRecipe(id string, dir *layerDir) {
	if !dir.recipe.there {
		return
	}
	remove := fsck.Fix{Action: fsck.RemovePath, Target: dir.recipe.path}
	const repair = "the recipe is removed; the layer stays, and cannot be saved"
	if dir.recipe.fault != nil {
		if v.snapshots[v.keyOf(id)].kind != snapshots.KindActive { // that of a layer under way is not complete
			v.add(fsck.Damage("recipe", dir.recipe.path, fsck.Said(dir.recipe.fault), repair, remove))
		}
		return
	}
	for _, rec := range v.layers {
		diff := rec.labels[store.DiffLabel]
		if v.snapshots[rec.snapshot].id == id && dir.recipe.digest != "" && diff != "" && diff != dir.recipe.digest.String() {
			v.add(fsck.Damage("recipe", dir.recipe.path, fmt.Sprintf("it is of the layer %s, it lies beside %s", dir.recipe.digest, diff), repair, remove))
		}
	}
}

func (v *verdict) keyOf(id string) string {
	for key, snap := range v.snapshots {
		if snap.id == id {
			return key
		}
	}
	return ""
}

// pins are the images that containers hold.
func (v *verdict) pins() map[ids.ContainerID][]ids.ImageID {
	out := map[ids.ContainerID][]ids.ImageID{}
	for _, l := range v.leases {
		if l.PinnedImage != "" {
			out[l.PinUser] = append(out[l.PinUser], l.PinnedImage)
		}
	}
	for user := range maps.Keys(out) {
		slices.Sort(out[user])
	}
	return out
}
