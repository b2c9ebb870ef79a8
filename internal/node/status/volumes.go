package status

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/storage"
	"monopod.dev/monopod/internal/storage/plan"
)

// Storage is who makes volumes for claims.
type Storage struct {
	// Directory is where they are.
	Directory string
	// Volumes tells of them; nil: none are made here, and Problem says why.
	Volumes Volumes
	Problem error
}

// Volumes is the provisioner.
type Volumes interface {
	// Report tells of all volumes, and how full each is as far as ctx lets it.
	Report(ctx context.Context, use bool) []storage.Told
	// Sizes says what would hold the size of a new volume, for which a class wants this.
	Sizes(want plan.Isolation) string
}

// storage says what is wrong with volumes.
func (t *Teller) storage(ctx context.Context, s *protocol.Status) {
	if t.Storage == nil {
		return
	}
	about := func(format string, args ...any) {
		s.Problems = append(s.Problems, protocol.Problem{About: "storage", Message: fmt.Sprintf(format, args...)})
	}
	if t.Storage.Problem != nil {
		about("volumes are not made for claims: %v", t.Storage.Problem)
	}
	if t.Storage.Volumes == nil {
		return
	}
	s.Storage = &protocol.Storage{Directory: t.Storage.Directory, SizesHeldBy: t.Storage.Volumes.Sizes(plan.Auto)}
	for _, v := range t.Storage.Volumes.Report(ctx, false) {
		switch v.State {
		case storage.Missing:
			about("the volume of %s is not there: %s; bring it back (is its disk mounted?), or delete the claim", v.Record.Claim, v.Path)
		case storage.Stray:
			about("%s was made for %s and belongs to no PersistentVolume; it stays: remove it when you have no use for it", v.Path, v.Record.Claim)
		case storage.Unreadable:
			about("%s is left as it is: %v", v.Path, v.Err)
		}
	}
}

// states are what is told of a volume, by what the provisioner says.
var states = map[storage.State]string{
	storage.Creating: protocol.VolumeCreating, storage.Ready: protocol.VolumeReady, storage.Removing: protocol.VolumeRemoving,
	storage.Missing: protocol.VolumeMissing, storage.Stray: protocol.VolumeStray, storage.Unreadable: protocol.VolumeUnreadable,
}

// Volumes tells of the volumes of claims, and which pods use them.
func (t *Teller) Volumes(ctx context.Context) protocol.Volumes {
	told := protocol.Volumes{Directory: t.Storage.Directory, Volumes: []protocol.Volume{}, NotAsked: []protocol.Unknown{}}
	if t.Storage.Volumes == nil {
		told.NotAsked = append(told.NotAsked, protocol.Unknown{What: "volumes", Why: fmt.Sprint(t.Storage.Problem)})
		return told
	}
	pods, _, err := t.ask(ctx)
	if err != nil {
		told.NotAsked = append(told.NotAsked, protocol.Unknown{What: "pods", Why: err.Error()})
	}
	users := users(pods)
	for _, v := range t.Storage.Volumes.Report(ctx, true) {
		r := v.Record
		one := protocol.Volume{
			Name: r.Name, Namespace: r.Claim.Namespace, Claim: r.Claim.Name, Pods: slices.Concat([]string{}, users[r.Claim.String()]), Class: r.Class,
			State: states[v.State], Size: r.Size, Used: v.Used, HeldBy: string(r.Hold), Path: v.Path,
		}
		if v.Err != nil {
			one.Problem = v.Err.Error()
		}
		told.Volumes = append(told.Volumes, one)
	}
	return told
}

// users are the names of the pods that use claims, by the claims' namespaces and names.
func users(pods []v1.Pod) map[string][]string {
	by := map[string][]string{}
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		for j := range p.Spec.Volumes {
			claim := ""
			switch v := &p.Spec.Volumes[j]; {
			case v.PersistentVolumeClaim != nil:
				claim = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				claim = ephemeral.VolumeClaimName(p, v)
			}
			if key := p.Namespace + "/" + claim; claim != "" && !slices.Contains(by[key], p.Name) {
				by[key] = append(by[key], p.Name)
			}
		}
	}
	for _, names := range by {
		slices.Sort(names)
	}
	return by
}
