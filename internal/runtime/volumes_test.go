package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/images"
)

const data = "registry.example/team/data:1"

// loadData loads an image of two layers that is no program: what an image volume shows.
func (n *node) loadData() string {
	n.Helper()
	path := filepath.Join(n.dir, "data.tar")
	n.check(images.WriteArchive(path, ociarchive.Image{Name: data, Layers: []ociarchive.Layer{
		{{Path: "models/a", Data: []byte("old")}, {Path: "models/b", Data: []byte("below")}, {Path: "tool", Data: []byte("#!/bin/sh\necho runs\n"), Mode: 0o755}},
		{{Path: "models/a", Data: []byte("new"), UID: 7, GID: 8}, {Path: "link", Symlink: "/models"}, {Path: "up", Symlink: "../../../../models"},
			{Path: "out", Symlink: "/etc/passwd"}, {Path: "loop", Symlink: "loop"}},
	}}))
	f, err := os.Open(path)
	n.check(err)
	defer f.Close()
	_, err = n.images.Load(n.ctx, image.LoadRequest{Archive: f})
	n.check(err)
	resp, err := n.img.ImageStatus(n.ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: data}})
	n.check(err)
	return resp.GetImage().GetId()
}

func imageMount(path, image, sub string) *cri.Mount {
	return &cri.Mount{ContainerPath: path, Image: &cri.ImageSpec{Image: image, UserSpecifiedImage: data}, ImageSubPath: sub, Readonly: true}
}

func TestImageVolumes(t *testing.T) {
	n := newNode(t)
	id := n.loadData()
	sb := n.run("volumes")

	t.Run("contents", func(t *testing.T) {
		cfg := shell("c", `cat /all/models/a /dir/b /linked/a /up/b; echo; touch /all/x 2>&1; /all/tool; /noexec/tool 2>&1; stat -c %u:%g /all/models/a; cat /one`)
		cfg.Mounts = []*cri.Mount{imageMount("/all", data, ""), imageMount("/dir", id, "models"), imageMount("/linked", data, "link"),
			imageMount("/up", data, "/up/"), imageMount("/noexec", data, "."), imageMount("/one", data, "models/../models/b")}
		cfg.Mounts[0].Readonly = false // "all image mounts are per feature definition readonly"
		cfg.Mounts[4].MountOptions = []string{"noexec"}
		got := n.output(sb, cfg)
		for _, want := range []string{"newbelownewbelow\n", "/all/x: Read-only", "runs\n", "/noexec/tool: Permission denied", "7:8\nbelow"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in %q", want, got)
			}
		}
		n.wantNothing()
	})

	t.Run("refused", func(t *testing.T) {
		for _, c := range []struct {
			m     *cri.Mount
			code  codes.Code
			words []string
		}{
			{imageMount("/v", "registry.example/team/none:1", ""), codes.NotFound, []string{"/v", "registry.example/team/none:1", "pull"}},
			{imageMount("/v", data, "models/none"), codes.InvalidArgument, []string{"/v", "image_sub_path", "models/none", "no such path"}},
			{imageMount("/v", data, "models/a/b"), codes.InvalidArgument, []string{"image_sub_path", "no such path"}},
			{imageMount("/v", data, "../../../etc/passwd"), codes.InvalidArgument, []string{"image_sub_path", "no such path"}},
			{imageMount("/v", data, "out"), codes.InvalidArgument, []string{"image_sub_path", "no such path"}},
			{imageMount("/v", data, "loop"), codes.InvalidArgument, []string{"image_sub_path", "loop"}},
			{&cri.Mount{ContainerPath: "/v", HostPath: "/tmp", Image: &cri.ImageSpec{Image: data}}, codes.InvalidArgument, []string{"host_path", data}},
			{&cri.Mount{ContainerPath: "/v", HostPath: "/tmp", ImageSubPath: "models"}, codes.InvalidArgument, []string{"image_sub_path"}},
			{&cri.Mount{ContainerPath: "/v"}, codes.InvalidArgument, []string{"host_path"}},
		} {
			cfg := shell("refused", sleeper)
			cfg.Mounts = []*cri.Mount{imageMount("/first", data, ""), c.m}
			_, err := n.tryCreate(sb, cfg)
			wantCode(t, err, c.code, c.words...)
		}
		n.wantNothing()
	})

	t.Run("half made", func(t *testing.T) {
		cfg := shell("half", sleeper)
		cfg.Mounts = []*cri.Mount{imageMount("/v", data, "")}
		rt := n.rt
		n.crash("runtime/container-create/created", func() {
			_, _ = rt.CreateContainer(n.ctx, &cri.CreateContainerRequest{PodSandboxId: sb, Config: cfg})
		})
		n.wantNothing()
		disarm := failpoint.Arm("runtime/container-create/created", func() error { return os.ErrDeadlineExceeded })
		defer disarm()
		if _, err := n.tryCreate(sb, cfg); err == nil {
			t.Error("created although it failed")
		}
		n.wantNothing()
	})

	t.Run("held while used", func(t *testing.T) {
		cfg := shell("c", sleeper)
		cfg.Mounts = []*cri.Mount{{HostPath: n.dir, ContainerPath: "/h"}, imageMount("/v", data, "link")}
		ctr := n.launch(sb, cfg)
		_, err := n.img.RemoveImage(n.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: id}})
		n.check(err)
		n.restart()
		if got := n.exec(ctr, "cat", "/v/a"); got != "new" {
			t.Errorf("after the image's removal and a restart: %q", got)
		}
		// Which image it is stays known, as kubelets show it in a pod's status.
		m := n.status(ctr).GetMounts()
		if len(m) != 2 || m[0].GetHostPath() != n.dir || m[1].GetHostPath() != "" || m[1].GetImageSubPath() != "link" ||
			m[1].GetImage().GetImage() != data || m[1].GetImage().GetUserSpecifiedImage() != data || !strings.Contains(m[1].GetImage().GetImageRef(), "sha256:") {
			t.Errorf("mounts in the status: %v", m)
		}
		n.remove(ctr)
		n.wantNothing()
		n.eventually("the image's layers to go", func() bool {
			_, err := n.images.Layers(n.ctx, ids.ImageID(id))
			return err != nil
		})
	})
}
