package runtime_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/imageservice"
	"monopod.dev/monopod/test/images"
)

// The service beside CRI's, from both of its sides.
func TestImageTools(t *testing.T) {
	n := prepareNode(t)
	registry := images.NewRegistry(t, images.RegistryConfig{})
	n.start()
	tools := imageservice.Client{Conn: n.conn}
	built, err := images.Busybox("registry.example/team/app:1")
	n.check(err)
	_, err = registry.Push(n.ctx, built, "team/app", "1")
	n.check(err)
	_, err = registry.Push(n.ctx, built, "team/app", "2")
	n.check(err)
	n.check(registry.WriteHosts(filepath.Join(n.dir, "hosts"), "registry.example"))

	var last []imageservice.LayerProgress
	img, err := tools.Pull(n.ctx, imageservice.PullRequest{Image: "registry.example/team/app:1"}, func(p []imageservice.LayerProgress) { last = p })
	n.check(err)
	if len(last) != 1 || last[0].State != "done" || last[0].Done != last[0].Total || last[0].Total == 0 {
		t.Errorf("the last of the progress is %+v", last)
	}
	if !slices.Equal(img.Tags, []string{"registry.example/team/app:1"}) || len(img.Digests) != 1 {
		t.Errorf("pulled %+v", img)
	}
	_, err = tools.Pull(n.ctx, imageservice.PullRequest{Image: "registry.example/team/none:1"}, func([]imageservice.LayerProgress) {})
	wantCode(t, err, codes.NotFound, "registry.example/team/none:1")
	_, err = tools.Pull(n.ctx, imageservice.PullRequest{Image: "registry.example/team/app:2"}, func([]imageservice.LayerProgress) {})
	n.check(err)

	cfg := shell("c", "sleep 3600")
	cfg.Image.Image = img.ID
	pod := n.run("tools")
	id := n.launch(pod, cfg)
	d, err := tools.Inspect(n.ctx, imageservice.InspectRequest{Image: img.ID[7:15]})
	n.check(err)
	if len(d.Users) != 1 || d.Users[0].Container != id || d.Users[0].Name != "c" || d.Users[0].State != "running" || d.Users[0].Pod != "tools" {
		t.Errorf("users %+v", d.Users)
	}
	if len(d.Layers) != 1 || !d.Layers[0].Recorded || d.Layers[0].Size == 0 || d.Layers[0].PackedSize == 0 || d.Layers[0].Digest == d.Layers[0].DiffID ||
		d.Layers[0].ChainID != d.Layers[0].DiffID || d.Platform != "linux/amd64" || !bytes.Contains(d.Config, []byte(d.Layers[0].DiffID)) {
		t.Errorf("details %+v", d)
	}

	var archive bytes.Buffer
	n.check(tools.Save(n.ctx, imageservice.SaveRequest{Images: []string{img.ID}}, &archive))
	wantCode(t, tools.Save(n.ctx, imageservice.SaveRequest{Images: []string{"none"}}, &archive), codes.NotFound, "none")

	// A name can be taken away while others are left; the last one of an image that is in use cannot, but by force.
	remove := func(force bool, refs ...string) (imageservice.Removed, error) {
		return tools.Remove(n.ctx, imageservice.RemoveRequest{Images: refs, Force: force})
	}
	r, err := remove(false, "registry.example/team/app:2")
	if err != nil || !slices.Equal(r.Untagged, []string{"registry.example/team/app:2"}) || len(r.IDs) != 0 {
		t.Errorf("removed %+v, %v", r, err)
	}
	_, err = remove(false, "registry.example/team/app:1")
	wantCode(t, err, codes.FailedPrecondition, "registry.example/team/app", "container c of pod", "/tools (running)")
	_, err = remove(false, "none")
	wantCode(t, err, codes.NotFound, "none")
	p, err := tools.Prune(n.ctx, imageservice.PruneRequest{All: true})
	if err != nil || len(p.Images) != 0 {
		t.Errorf("what is in use was pruned: %+v, %v", p, err)
	}
	r, err = remove(true, "registry.example/team/app:1")
	if err != nil || !slices.Equal(r.IDs, []string{img.ID}) || r.Freed != 0 || len(r.Untagged) != 2 {
		t.Errorf("removed %+v, %v", r, err)
	}
	n.exec(id, "ls", "/")
	n.check(n.tryStop(id, 0))
	_, err = n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: id})
	n.check(err)

	loaded, err := tools.Load(n.ctx, imageservice.LoadRequest{}, &archive)
	if err != nil || len(loaded) != 1 || loaded[0].ID != img.ID {
		t.Fatalf("loaded %+v, %v", loaded, err)
	}
	// Without --all only what has no tag goes.
	for _, c := range []struct {
		req  imageservice.PruneRequest
		gone int
	}{{imageservice.PruneRequest{}, 0}, {imageservice.PruneRequest{All: true, DryRun: true}, 1}, {imageservice.PruneRequest{All: true}, 1}, {imageservice.PruneRequest{All: true}, 0}} {
		p, err := tools.Prune(n.ctx, c.req)
		if err != nil || len(p.Images) != c.gone || (p.Freed > 0) != (c.gone > 0) {
			t.Errorf("%+v: %+v, %v", c.req, p, err)
		}
	}
	if all, err := tools.List(n.ctx); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}
