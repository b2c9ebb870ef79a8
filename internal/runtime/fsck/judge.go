package fsck

import (
	"fmt"
	"slices"

	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/sandbox"
)

const nextStart = "none: the next start of the node does it"

// judge says what is wrong. It is a pure function.
func judge(f *facts) []fsck.Finding {
	var out []fsck.Finding
	for id, rec := range f.containers {
		out = append(out, f.container(id, rec)...)
	}
	for id, rec := range f.sandboxes {
		out = append(out, f.sandbox(id, rec)...)
	}
	out = append(out, f.folders()...)
	out = append(out, f.pins()...)
	out = append(out, f.network()...)
	fsck.Sort(out)
	return out
}

// container compares a record with what the container stands on.
func (f *facts) container(id string, rec container.Record) (out []fsck.Finding) {
	bad := func(problem, repair string, fix fsck.Fix) {
		out = append(out, fsck.Damage("container", id, problem, repair, fix))
	}
	const remove = "none: remove the container"
	if rec.CreatedAt.IsZero() || rec.Removing {
		return []fsck.Finding{fsck.Left("container", id, "it was being made or removed when the node was killed", nextStart, fsck.Fix{})}
	}
	if _, ok := f.sandboxes[string(rec.SandboxID)]; !ok && !f.unreadSandboxes.Has(string(rec.SandboxID)) {
		bad(fmt.Sprintf("its sandbox %s is in no record", rec.SandboxID), remove, fsck.Fix{})
	}
	if d, ok := f.layers[id]; !ok || !d.upper {
		bad("its writable layer is missing", remove, fsck.Fix{})
	}
	if !f.images.Known {
		return out
	}
	for _, img := range rec.Images() {
		if slices.Contains(f.images.Pins[ids.ContainerID(id)], img) {
			continue // that the image is whole is the image store's to tell
		}
		if why := f.images.ImageFault(img); why != "" {
			bad(fmt.Sprintf("its image %s is not there: %s", img, why), remove, fsck.Fix{})
			continue
		}
		bad(fmt.Sprintf("it does not hold its image %s, which may be removed", img), "the image is held for it", fsck.Fix{Action: fsck.Pin, Table: id, Target: string(img)})
	}
	return out
}

func (f *facts) sandbox(id string, rec sandbox.Record) []fsck.Finding {
	if rec.ReadyAt.IsZero() {
		return []fsck.Finding{fsck.Left("sandbox", id, "it was being made when the node was killed", nextStart, fsck.Fix{})}
	}
	if !rec.Ready() || rec.BootID != f.boot || !f.hasRunDir {
		return nil
	}
	if _, ok := f.pods[id]; !ok {
		return []fsck.Finding{fsck.Damage("sandbox", id, "its folder of this boot is missing", "none: stop and remove the sandbox", fsck.Fix{})}
	}
	if _, bridged := f.addresses[ids.SandboxID(id)]; !bridged && !f.cni[id] && !rec.HostNetwork() {
		return []fsck.Finding{fsck.Damage("address", id, fmt.Sprintf("the sandbox has the addresses %v, and the ledger does not know of them", rec.IPs),
			"none: the next start of the node learns them from the sandbox", fsck.Fix{})}
	}
	return nil
}

// folders names those that are of nobody.
func (f *facts) folders() (out []fsck.Finding) {
	add := func(d folder, what string) {
		if d.used {
			out = append(out, fsck.Left("directory", d.path, "no record knows the "+what+", and something is mounted there",
				"none: the next start of the node ends what runs in it, and removes it", fsck.Fix{}))
			return
		}
		out = append(out, fsck.Left("directory", d.path, "no record knows the "+what, "removed (the next start of the node does so, too)",
			fsck.Fix{Action: fsck.RemoveFolder, Target: d.path}))
	}
	for _, folders := range []map[string]folder{f.layers, f.bundles} {
		for id, d := range folders {
			if _, ok := f.containers[id]; !ok && !f.unreadContainers.Has(id) {
				d.used = d.used || f.bundles[id].used // the layer is in use as long as its root file system is mounted
				add(d, "container")
			}
		}
	}
	for id, d := range f.pods {
		if _, ok := f.sandboxes[id]; !ok && !f.unreadSandboxes.Has(id) {
			add(d, "sandbox")
		}
	}
	return out
}

// pins names those of containers that are gone.
func (f *facts) pins() (out []fsck.Finding) {
	for user, images := range f.images.Pins {
		if _, ok := f.containers[string(user)]; ok || f.unreadContainers.Has(string(user)) {
			continue
		}
		for _, img := range images {
			out = append(out, fsck.Left("pin", string(user), fmt.Sprintf("no record knows the container, which holds the image %s", img),
				"the image is let go (the next start of the node does so, too)", fsck.Fix{Action: fsck.DropLease, Target: store.PinID(img, user)}))
		}
	}
	return out
}

// network names addresses of sandboxes that are gone. Those that an interface still has are given back where that is removed, too.
func (f *facts) network() (out []fsck.Finding) {
	gone := func(id string) bool {
		rec, ok := f.sandboxes[id]
		return !ok && !f.unreadSandboxes.Has(id) || ok && !rec.ReclaimedAt.IsZero()
	}
	for sandboxID, held := range f.addresses {
		id := string(sandboxID)
		if !gone(id) {
			continue
		}
		what := fmt.Sprintf("the addresses %v belong to a sandbox that is gone", held.Addresses)
		if _, ok := f.pods[id]; ok || f.links[held.Interface] {
			out = append(out, fsck.Left("address", id, what, "none: the next start of the node removes its interface "+held.Interface+", and frees them", fsck.Fix{}))
			continue
		}
		out = append(out, fsck.Left("address", id, what, "they are free", fsck.Fix{Action: fsck.DropRecord, Table: lease.AddressTable, Target: id}))
	}
	for id := range f.cni {
		if gone(id) {
			out = append(out, fsck.Left("address", id, "a sandbox that is gone is still connected by a CNI plugin", nextStart, fsck.Fix{}))
		}
	}
	return out
}
