package runtime_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/imageservice"
	"monopod.dev/monopod/test/images"
)

func TestImages(t *testing.T) {
	n := prepareNode(t)
	registry := images.NewRegistry(t, images.RegistryConfig{})
	n.start()
	status := func(ref string) *cri.Image {
		t.Helper()
		resp, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
		n.check(err)
		return resp.GetImage()
	}
	if img := status(busybox); img != nil {
		t.Errorf("an image that is not there: %v", img)
	}
	f, err := os.Open(busyboxArchive)
	n.check(err)
	defer f.Close()
	tools := imageservice.Client{Conn: n.conn}
	loaded, err := tools.Load(n.ctx, imageservice.LoadRequest{}, f)
	if err != nil || len(loaded) != 1 || !slices.Contains(loaded[0].Names, busybox) {
		t.Fatalf("loaded %v, %v", loaded, err)
	}
	_, err = tools.Load(n.ctx, imageservice.LoadRequest{}, strings.NewReader("this is no archive"))
	wantCode(t, err, codes.InvalidArgument, "is no tar")
	img := status("busybox")
	if img == nil || !slices.Contains(img.GetRepoTags(), busybox) || img.GetSize() == 0 {
		t.Fatalf("image %v", img)
	}
	list, err := n.img.ListImages(n.ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: img.GetId()}}})
	if err != nil || len(list.GetImages()) != 1 {
		t.Errorf("list %v, %v", list, err)
	}
	fs, err := n.img.ImageFsInfo(n.ctx, &cri.ImageFsInfoRequest{})
	if err != nil || len(fs.GetImageFilesystems()) != 1 || !strings.HasPrefix(filepath.Join(n.dir, "data/images"), fs.GetImageFilesystems()[0].GetFsId().GetMountpoint()) {
		t.Errorf("file system %v, %v", fs, err)
	}
	_, err = n.img.PullImage(n.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{}})
	wantCode(t, err, codes.InvalidArgument, "image.image")

	t.Run("pulled", func(t *testing.T) {
		built, err := images.Busybox("registry.example/team/app:1")
		n.check(err)
		built.Config.User, built.Config.StopSignal = "app", "SIGQUIT"
		_, err = registry.Push(n.ctx, built, "team/app", "1")
		n.check(err)
		n.check(registry.WriteHosts(filepath.Join(n.dir, "hosts"), "registry.example"))
		resp, err := n.img.PullImage(n.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "registry.example/team/app:1"}})
		n.check(err)
		if img := status(resp.GetImageRef()); img.GetUsername() != "app" || len(img.GetRepoDigests()) != 1 {
			t.Error(img)
		}
		cfg := shell("c", "trap 'exit 11' QUIT; touch /tmp/ready; while :; do sleep 3600 & wait; done")
		cfg.Image.Image = resp.GetImageRef()
		id := n.launch(n.run("images"), cfg)
		n.eventually("the trap", func() bool { return strings.Contains(n.exec(id, "ls", "/tmp"), "ready") })
		for range 2 { // the image of a running container can be removed; what the container needs of it stays
			_, err = n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: resp.GetImageRef()}})
			n.check(err)
		}
		if got := n.exec(id, "id", "-un"); got != "app" {
			t.Errorf("user %s", got)
		}
		n.check(n.tryStop(id, 20))
		if st := n.status(id); st.GetExitCode() != 11 {
			t.Errorf("the image's stop signal was not sent: %v", st)
		}
		_, err = n.img.PullImage(n.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "registry.example/team/none:1"}})
		wantCode(t, err, codes.NotFound, "registry.example/team/none:1")
	})
}
