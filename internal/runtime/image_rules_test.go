package runtime_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
)

// bare builds an image without layers, which differs from others by a variable.
func (n *node) bare(name string, i int) *ociarchive.Built {
	n.Helper()
	img := ociarchive.Image{Name: name}
	img.Config.Env = []string{fmt.Sprint("N=", i)}
	b, err := ociarchive.Build(img)
	n.check(err)
	return b
}

func (n *node) imageStatus(ref string) *cri.Image {
	n.Helper()
	resp, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
	n.check(err)
	return resp.GetImage()
}

// An image is found by all its names, by its id and by the begin of its id, in every call; the id is one value everywhere.
func TestImageNames(t *testing.T) {
	n := newNode(t)
	registry := images.NewRegistry(t, images.RegistryConfig{})
	built, err := images.Busybox("")
	n.check(err)
	built.Config.Env = append(built.Config.Env, "OTHER=1")
	digest, err := registry.Push(n.ctx, built, "library/tool", "latest")
	n.check(err)
	n.check(registry.WriteHosts(filepath.Join(n.dir, "hosts"), "docker.io"))
	// What goes with a pull, and means nothing to it.
	spec := &cri.ImageSpec{Image: "tool", UserSpecifiedImage: "tool:latest", Annotations: map[string]string{"org.opencontainers.image.ref.name": "x"}}
	pulled, err := n.img.PullImage(n.ctx, &cri.PullImageRequest{Image: spec, SandboxConfig: n.sandboxConfig("of nobody")})
	n.check(err)
	id := pulled.GetImageRef()
	img := n.imageStatus(id)
	if img.GetId() != id || !slices.Equal(img.GetRepoTags(), []string{"docker.io/library/tool:latest"}) ||
		!slices.Equal(img.GetRepoDigests(), []string{"docker.io/library/tool@" + digest.String()}) {
		t.Fatalf("pulled %s: %v", id, img)
	}
	hex := strings.TrimPrefix(id, "sha256:")
	sb := n.run("names")
	for _, ref := range []string{"tool", "tool:latest", "library/tool", "docker.io/tool", "docker.io/library/tool:latest", "index.docker.io/library/tool:latest",
		"tool@" + digest.String(), "tool:latest@" + digest.String(), "tool:v9@" + digest.String(), id, hex, hex[:12], "sha256:" + hex[:12], hex[:63]} {
		if got := n.imageStatus(ref); got.GetId() != id {
			t.Errorf("ImageStatus of %s: %v", ref, got)
		}
		list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: ref}}})
		if err != nil || len(list.GetImages()) != 1 || list.GetImages()[0].GetId() != id {
			t.Errorf("ListImages of %s: %v %v", ref, list, err)
		}
	}
	for i, ref := range []string{"tool", "library/tool@" + digest.String(), id, hex} {
		cfg := shell(fmt.Sprint("c", i), sleeper)
		cfg.Image.Image = ref
		ct := n.create(sb, cfg)
		listed, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: ct}})
		n.check(err)
		if got := n.status(ct).GetImageId(); got != id || listed.GetContainers()[0].GetImageId() != id {
			t.Errorf("a container of %s: its image is %q in its status, %v in the list", ref, got, listed)
		}
	}
	for _, ref := range []string{"none", "tool:v9", "tool@sha256:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("0", 64), strings.Repeat("0", 64), strings.Repeat("0", 12)} {
		if got := n.imageStatus(ref); got != nil {
			t.Errorf("an image that is not there, %s: %v", ref, got)
		}
		list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: ref}}})
		if err != nil || len(list.GetImages()) != 0 {
			t.Errorf("ListImages of %s: %v %v", ref, list, err)
		}
		_, err = n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: ref}})
		n.check(err)
	}
	if n.imageStatus(id) == nil || n.imageStatus(busybox) == nil {
		t.Error("removing what is not there removed something")
	}
}

// The begin of an id that two images share names neither.
func TestAmbiguousImageIDs(t *testing.T) {
	n := prepareNode(t)
	n.start()
	byPrefix := map[string]int{} // by the begin of the id, which image has it
	var twins []*ociarchive.Built
	var prefix string
	for i := 0; len(twins) == 0; i++ { // of some hundred ids two begin with the same four digits
		b := n.bare("", i)
		prefix = b.Config.Digest.Encoded()[:4]
		if twin, ok := byPrefix[prefix]; ok {
			twins = []*ociarchive.Built{n.bare("", twin), b}
		}
		byPrefix[prefix] = i
	}
	var archive bytes.Buffer
	n.check(ociarchive.Write(&archive, twins...))
	_, err := n.images.Load(n.ctx, image.LoadRequest{Archive: &archive})
	n.check(err)
	for _, ref := range []string{prefix, "sha256:" + prefix} {
		spec := &cri.ImageSpec{Image: ref}
		_, err = n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: spec})
		wantCode(t, err, codes.InvalidArgument, prefix, "not unique")
		_, err = n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: spec}})
		wantCode(t, err, codes.InvalidArgument, prefix, "not unique")
		_, err = n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: spec})
		wantCode(t, err, codes.InvalidArgument, prefix, "not unique")
	}
	for _, b := range twins {
		id := b.Config.Digest.Encoded()
		if got := n.imageStatus(id[:40]); got.GetId() != "sha256:"+id {
			t.Errorf("%s: %v", id[:40], got)
		}
	}
}

// A stream of images tells each exactly once, in several messages, and then ends; as the list does.
func TestStreamImages(t *testing.T) {
	n := prepareNode(t)
	n.start()
	const count = 600
	var all []*ociarchive.Built
	for i := range count {
		all = append(all, n.bare(fmt.Sprintf("docker.io/library/i%d:v1", i), i))
	}
	var archive bytes.Buffer
	n.check(ociarchive.Write(&archive, all...))
	_, err := n.images.Load(n.ctx, image.LoadRequest{Archive: &archive})
	n.check(err)
	stream, err := n.img.StreamImages(n.ctx, &cri.StreamImagesRequest{})
	seen := map[string]int{}
	messages := drain(n, stream, err)
	for _, m := range messages {
		if len(m.GetImages()) == 0 {
			t.Error("a message without an image")
		}
		for _, img := range m.GetImages() {
			seen[img.GetId()]++
		}
	}
	for _, b := range all {
		if times := seen[b.Config.Digest.String()]; times != 1 {
			t.Errorf("%s was told %d times", b.Config.Digest, times)
		}
	}
	list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{})
	if err != nil || len(seen) != count || len(list.GetImages()) != count || len(messages) < 2 {
		t.Errorf("%d images in %d messages, %d in the list, %v", len(seen), len(messages), len(list.GetImages()), err)
	}
}

// Removing an image by one of its names, in whichever repository, removes all; and again, nothing is an error.
func TestRemoveImageRemovesAllTags(t *testing.T) {
	n := prepareNode(t)
	n.start()
	b := n.bare("", 1)
	other := n.bare("docker.io/library/other:v1", 2)
	for name, by := range map[string]string{"a tag": "repo/image:v1", "another repository's": "registry.example/another:latest", "the id": b.Config.Digest.String(), "the begin of the id": b.Config.Digest.Encoded()[:10]} {
		for _, name := range []string{"docker.io/repo/image:v1", "docker.io/repo/image:v2", "registry.example/another:latest"} {
			named := n.bare(name, 1)
			var archive bytes.Buffer
			n.check(ociarchive.Write(&archive, named, other))
			_, err := n.images.Load(n.ctx, image.LoadRequest{Archive: &archive})
			n.check(err)
		}
		if img := n.imageStatus(b.Config.Digest.String()); len(img.GetRepoTags()) != 3 {
			t.Fatalf("%v", img)
		}
		before, err := n.img.ImageFsInfo(n.ctx, &cri.ImageFsInfoRequest{})
		n.check(err)
		for range 2 {
			_, err := n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: by}})
			n.check(err)
			for _, ref := range []string{"repo/image:v1", "repo/image:v2", "registry.example/another:latest", b.Config.Digest.String()} {
				if img := n.imageStatus(ref); img != nil {
					t.Errorf("removed by %s, and %s is there: %v", name, ref, img)
				}
			}
			list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{})
			if err != nil || len(list.GetImages()) != 1 || list.GetImages()[0].GetId() != other.Config.Digest.String() {
				t.Errorf("removed by %s: %v %v", name, list, err)
			}
		}
		n.eventually("the space", func() bool {
			after, err := n.img.ImageFsInfo(n.ctx, &cri.ImageFsInfoRequest{})
			n.check(err)
			return after.GetImageFilesystems()[0].GetUsedBytes().GetValue() < before.GetImageFilesystems()[0].GetUsedBytes().GetValue()
		})
	}
}

// The file systems of images and of containers are told with what each takes; where they are one, they have one mountpoint.
func TestImageFsInfo(t *testing.T) {
	n := newNode(t)
	info := func() (images, containers *cri.FilesystemUsage) {
		t.Helper()
		resp, err := n.img.ImageFsInfo(n.ctx, &cri.ImageFsInfoRequest{})
		n.check(err)
		if len(resp.GetImageFilesystems()) != 1 || len(resp.GetContainerFilesystems()) != 1 {
			t.Fatalf("%v", resp)
		}
		return resp.GetImageFilesystems()[0], resp.GetContainerFilesystems()[0]
	}
	images, containers := info()
	mountpoint := images.GetFsId().GetMountpoint()
	if st, err := os.Stat(mountpoint); err != nil || !st.IsDir() || containers.GetFsId().GetMountpoint() != mountpoint {
		t.Errorf("images %v, containers %v: %v", images, containers, err)
	}
	if images.GetTimestamp() <= 0 || containers.GetTimestamp() <= 0 || images.GetUsedBytes().GetValue() < 1<<20 || images.GetInodesUsed().GetValue() < 10 ||
		containers.GetUsedBytes().GetValue() != 0 {
		t.Errorf("images %v, containers %v", images, containers)
	}
	id := n.launch(n.run("writes"), shell("c", "dd if=/dev/zero of=/written bs=1M count=3; touch /a /b; "+sleeper))
	n.eventually("what is written", func() bool {
		_, c := info()
		return c.GetUsedBytes().GetValue() >= 3<<20 && c.GetInodesUsed().GetValue() >= 4
	})
	// Less may be taken: what the archive brought beside the image is collected in the background.
	if later, _ := info(); later.GetUsedBytes().GetValue() > images.GetUsedBytes().GetValue() {
		t.Errorf("a container's bytes count as the images': %v, before %v", later, images)
	}
	n.check(n.tryStop(id, 0))
	n.remove(id)
	if _, c := info(); c.GetUsedBytes().GetValue() != 0 || c.GetInodesUsed().GetValue() != 0 {
		t.Errorf("after the container is removed: %v", c)
	}
}
