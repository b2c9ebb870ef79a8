package runtime

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/store"
	"monopod.dev/monopod/internal/image/unpack"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/container"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

// imageTools is the service beside CRI's.
type imageTools struct{ *Server }

var _ imageservice.Service = imageTools{}

// List implements imageservice.Service.
func (t imageTools) List(ctx context.Context, _ imageservice.ListRequest) ([]imageservice.Image, error) {
	all, err := t.cfg.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	users, err := t.imageUsers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]imageservice.Image, 0, len(all))
	for _, img := range all {
		d, err := t.cfg.Images.Inspect(ctx, img.ID)
		if errdefs.IsNotFound(err) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		out = append(out, toolImage(d, users))
	}
	return out, nil
}

func toolImage(d store.Details, users map[ids.ImageID][]imageservice.User) imageservice.Image {
	return imageservice.Image{ID: string(d.ID), Tags: append([]string{}, d.RepoTags...), Digests: append([]string{}, d.RepoDigests...), Size: d.Size, Created: d.Created,
		Platform: d.Platform, Pinned: d.Pinned, Users: append([]imageservice.User{}, users[d.ID]...)}
}

// imageUsers are the containers that hold each image. The pins are what really holds an image, so they are what is asked.
func (t imageTools) imageUsers(ctx context.Context) (map[ids.ImageID][]imageservice.User, error) {
	pins, err := t.cfg.Images.Pins(ctx)
	if err != nil {
		return nil, err
	}
	known := map[ids.ContainerID]*container.Record{}
	for _, rec := range t.containers.List() {
		known[rec.ID] = &rec
	}
	out := map[ids.ImageID][]imageservice.User{}
	for id, held := range pins {
		u := imageservice.User{Container: string(id)}
		if rec := known[id]; rec != nil {
			u.Name = rec.Config().GetMetadata().GetName()
			u.State = strings.ToLower(strings.TrimPrefix(rec.State().String(), "CONTAINER_"))
			if sb, err := t.sandboxes.Get(rec.SandboxID); err == nil {
				u.Pod, u.Namespace = sb.Config().GetMetadata().GetName(), sb.Config().GetMetadata().GetNamespace()
			}
		}
		for _, img := range held {
			out[img] = append(out[img], u)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b imageservice.User) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container))
		})
	}
	return out, nil
}

// Inspect implements imageservice.Service.
func (t imageTools) Inspect(ctx context.Context, req imageservice.InspectRequest) (imageservice.Details, error) {
	img, err := t.findImage(ctx, req.Image)
	if err != nil {
		return imageservice.Details{}, err
	}
	d, err := t.cfg.Images.Inspect(ctx, img.ID)
	if err != nil {
		return imageservice.Details{}, err
	}
	users, err := t.imageUsers(ctx)
	if err != nil {
		return imageservice.Details{}, err
	}
	out := imageservice.Details{Image: toolImage(d, users), Manifest: d.Target.Digest.String(), MediaType: d.Target.MediaType,
		Layers: []imageservice.Layer{}, Config: d.RawConfig}
	for _, l := range d.Layers {
		out.Layers = append(out.Layers, imageservice.Layer{Digest: l.Packed.Digest.String(), PackedSize: l.Packed.Size, DiffID: l.DiffID.String(),
			ChainID: l.ChainID.String(), Size: l.Size, Recorded: l.Recorded})
	}
	return out, nil
}

// Remove implements imageservice.Service. Everything is looked at before anything is removed.
func (t imageTools) Remove(ctx context.Context, req imageservice.RemoveRequest) (imageservice.Removed, error) {
	var out imageservice.Removed
	users, err := t.imageUsers(ctx)
	if err != nil {
		return out, err
	}
	names := map[ids.ImageID][]string{} // what goes; of an image that goes as a whole all of them
	var order []ids.ImageID
	for _, ref := range req.Images {
		img, err := t.findImage(ctx, ref)
		if errdefs.IsNotFound(err) && req.Missing {
			continue
		}
		if err != nil {
			return out, err
		}
		if _, ok := names[img.ID]; !ok {
			order = append(order, img.ID)
		}
		names[img.ID] = append(names[img.ID], dropped(img, ref)...)
	}
	var gone []ids.ImageID
	for _, id := range order {
		all := t.cfg.Images.Names(id)
		if !lastTag(all, names[id]) {
			continue
		}
		if held := users[id]; len(held) > 0 && !req.Force {
			return out, fmt.Errorf("image %s is in use by %s; remove the container first, or use force: it keeps what it needs then: %w",
				label(all, id), describeUsers(held), errdefs.ErrFailedPrecondition)
		}
		names[id] = all
		gone = append(gone, id)
	}
	unused := slices.DeleteFunc(slices.Clone(gone), func(id ids.ImageID) bool { return len(users[id]) > 0 })
	freed := t.cfg.Images.Reclaimable(ctx, unused)
	for _, id := range order {
		if err := t.cfg.Images.Untag(ctx, names[id]...); err != nil {
			return out, err
		}
		slices.Sort(names[id])
		for _, n := range slices.Compact(names[id]) {
			if n != string(id) {
				out.Untagged = append(out.Untagged, n)
			}
		}
		if slices.Contains(gone, id) {
			out.IDs = append(out.IDs, string(id))
		}
	}
	out.Freed = freed
	return out, nil
}

// dropped are the names that ref takes from its image: that one, or all when it is an id.
func dropped(img store.Image, ref string) []string {
	named, err := reference.ParseDockerRef(ref)
	if err == nil {
		for _, n := range append(slices.Clone(img.RepoTags), img.RepoDigests...) {
			if n == named.String() {
				return []string{n}
			}
		}
	}
	return append(append([]string{string(img.ID)}, img.RepoTags...), img.RepoDigests...)
}

// lastTag says whether an image has no tag any more without these names; digests alone do not keep it unless it has had no tags.
func lastTag(all, without []string) bool {
	tags, digests := 0, 0
	for _, n := range all {
		switch {
		case slices.Contains(without, n):
		case strings.Contains(n, "@"):
			digests++
		default:
			tags++
		}
	}
	if tags > 0 {
		return false
	}
	hadTags := slices.ContainsFunc(all, func(n string) bool { return !strings.Contains(n, "@") })
	return hadTags || digests == 0
}

func label(names []string, id ids.ImageID) string {
	if len(names) > 0 {
		return names[0]
	}
	return string(id)
}

func describeUsers(users []imageservice.User) string {
	u := users[0]
	s := "container " + u.Container[:min(13, len(u.Container))]
	if u.Name != "" {
		s = fmt.Sprintf("container %s of pod %s/%s (%s)", u.Name, u.Namespace, u.Pod, u.State)
	}
	if n := len(users) - 1; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

// Prune implements imageservice.Service. Images that are pinned or in use are never removed.
func (t imageTools) Prune(ctx context.Context, req imageservice.PruneRequest) (imageservice.Pruned, error) {
	out := imageservice.Pruned{Images: []imageservice.Image{}}
	all, err := t.List(ctx, imageservice.ListRequest{})
	if err != nil {
		return out, err
	}
	var gone []ids.ImageID
	for _, img := range all {
		if len(img.Users) == 0 && !img.Pinned && (req.All || len(img.Tags) == 0) {
			out.Images = append(out.Images, img)
			gone = append(gone, ids.ImageID(img.ID))
		}
	}
	out.Freed = t.cfg.Images.Reclaimable(ctx, gone)
	if req.DryRun {
		return out, nil
	}
	for _, id := range gone {
		if err := t.cfg.Images.Remove(ctx, string(id)); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Pull implements imageservice.Service.
func (t imageTools) Pull(ctx context.Context, req imageservice.PullRequest, progress func([]imageservice.LayerProgress)) (imageservice.Image, error) {
	pull := image.PullRequest{Ref: req.Image, Progress: func(p unpack.Progress) {
		layers := make([]imageservice.LayerProgress, 0, len(p.Layers))
		for _, l := range p.Layers {
			layers = append(layers, imageservice.LayerProgress{Digest: l.Digest.String(), State: string(l.State), Done: l.Done, Total: l.Total})
		}
		progress(layers)
	}}
	if req.Image == "" {
		return imageservice.Image{}, fmt.Errorf("image is empty; name the image: %w", errdefs.ErrInvalidArgument)
	}
	if req.Username != "" || req.Password != "" {
		pull.Auth = &registry.Auth{Username: req.Username, Password: req.Password}
	}
	img, err := t.cfg.Images.Pull(ctx, pull)
	if err != nil {
		return imageservice.Image{}, err
	}
	d, err := t.cfg.Images.Inspect(ctx, img.ID)
	if err != nil {
		return imageservice.Image{}, err
	}
	return toolImage(d, nil), nil
}

// Load implements imageservice.Service.
func (t imageTools) Load(ctx context.Context, req imageservice.LoadRequest, archive io.Reader) ([]imageservice.Loaded, error) {
	loaded, err := t.cfg.Images.Load(ctx, image.LoadRequest{Archive: archive, Name: req.Name})
	if err != nil {
		return nil, err
	}
	out := make([]imageservice.Loaded, 0, len(loaded))
	for _, l := range loaded {
		out = append(out, imageservice.Loaded{ID: string(l.ID), Names: append([]string{}, l.Names...)})
	}
	return out, nil
}

// Save implements imageservice.Service.
func (t imageTools) Save(ctx context.Context, req imageservice.SaveRequest, archive io.Writer) error {
	var refs []string
	for _, ref := range req.Images {
		img, err := t.findImage(ctx, ref)
		if err != nil {
			return err
		}
		refs = append(refs, string(img.ID))
	}
	return t.cfg.Images.Save(ctx, refs, archive)
}
