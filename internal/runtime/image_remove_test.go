package runtime_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/images"
)

// TestRemoveImageInUse: an image that is removed is gone for clients at once, whatever it is removed by; containers that are made of it, or
// just being made, are unharmed; the space comes back with the last of them.
func TestRemoveImageInUse(t *testing.T) {
	n := startNode(prepareNode(t))
	const name, second = "example.test/mine:v1", "example.test/mine:v2"
	var id string
	load := func() {
		t.Helper()
		var archive bytes.Buffer
		for _, tag := range []string{name, second} {
			img, err := images.Busybox(tag)
			n.check(err)
			img.Config.Env = append(img.Config.Env, "MINE=1")                                       // another configuration than busybox's
			img.Layers = append(img.Layers, ociarchive.Layer{{Path: "mine", Data: []byte("mine")}}) // and a layer of its own
			built, err := ociarchive.Build(img)
			n.check(err)
			archive.Reset()
			n.check(ociarchive.Write(&archive, built))
			loaded, err := n.images.Load(n.ctx, image.LoadRequest{Archive: &archive})
			n.check(err)
			id = string(loaded[0].ID)
		}
	}
	removed := func(by string) {
		t.Helper()
		_, err := n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: by}})
		n.check(err)
		for _, ref := range []string{name, second, id} {
			if st, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}}); err != nil || st.GetImage() != nil {
				t.Errorf("removed by %s, the status of %s is %v, %v", by, ref, st, err)
			}
		}
		list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{})
		if err != nil || len(list.GetImages()) != 1 { // busybox
			t.Errorf("removed by %s: %v, %v", by, list, err)
		}
	}
	used := func() uint64 {
		t.Helper()
		resp, err := n.img.ImageFsInfo(n.ctx, &cri.ImageFsInfoRequest{})
		n.check(err)
		return resp.GetImageFilesystems()[0].GetUsedBytes().GetValue()
	}
	n.restart() // the layers as the archive had them have gone by then
	before := used()
	sb := n.run("s")
	of := func(container string) *cri.ContainerConfig {
		cfg := shell(container, sleeper)
		cfg.Image.Image = name
		return cfg
	}

	load()
	whole := used()
	one, two := n.launch(sb, of("one")), n.launch(sb, of("two"))
	removed(second)
	n.restart()
	for _, c := range []string{one, two} {
		if got := n.exec(c, "cat", "/mine"); got != "mine" || n.status(c).GetImageId() != id {
			t.Errorf("after the removal and a restart: %q, %v", got, n.status(c))
		}
	}
	n.remove(one)
	n.exec(two, "cat", "/mine")
	if got := used(); got <= before || got > whole {
		t.Errorf("with one user %d bytes are used; %d with the image, %d without", got, whole, before)
	}
	n.remove(two)
	n.eventually("the space of a removed image that nobody uses any more", func() bool { return used() == before })

	// A container is just being made: before it holds the image it fails, and leaves nothing; afterwards it is as any other.
	for point, made := range map[string]bool{"runtime/container-create/persisted": false, "runtime/container-create/pinned": true} {
		load()
		disarm := failpoint.Arm(point, func() error { removed(id); return nil })
		c, err := n.tryCreate(sb, of("late"))
		disarm()
		if made {
			n.check(err)
			n.check(n.tryStart(c))
			if got := n.exec(c, "cat", "/mine"); got != "mine" {
				t.Errorf("it has %q", got)
			}
			n.remove(c)
		} else {
			wantCode(t, err, codes.NotFound, id)
		}
		n.wantNothing()
		n.eventually("the space of a removed image that nobody uses any more", func() bool { return used() == before })
	}

	n.stop()
	n.fsck("at the end", "")
	n.start()
}
