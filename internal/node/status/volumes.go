package status

import (
	"context"
	"fmt"

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
	// Copies makes copies of volumes; nil: as Volumes.
	Copies *storage.Copies
}

// Volumes is the provisioner.
type Volumes interface {
	// Report tells of all volumes, and how full each is as far as ctx lets it.
	Report(ctx context.Context, use bool) []storage.Told
	// Sizes says what would hold the size of a new volume, for which a class wants this.
	Sizes(want plan.Isolation) string
	// Troubles are those of snapshots.
	Troubles(ctx context.Context) []string
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
	for _, trouble := range t.Storage.Volumes.Troubles(ctx) {
		about("%s", trouble)
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
	users := plan.Users(pods)
	for _, v := range t.Storage.Volumes.Report(ctx, true) {
		r := v.Record
		one := protocol.Volume{
			Name: r.Name, Namespace: r.Claim.Namespace, Claim: r.Claim.Name, Pods: append([]string{}, users[r.Claim.String()]...), Class: r.Class,
			State: states[v.State], Size: r.Size, Used: v.Used, HeldBy: string(r.Hold), Path: v.Path,
			Snapshots: append([]string{}, v.Snapshots...),
		}
		if v.Err != nil {
			one.Problem = v.Err.Error()
		}
		told.Volumes = append(told.Volumes, one)
	}
	return told
}
