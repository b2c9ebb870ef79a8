package runtime

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/image/registry"
	"monopod.dev/monopod/internal/image/store"
)

// listedImages are all images, or the one that the filter names.
func (s *Server) listedImages(ctx context.Context, f *cri.ImageFilter) (iter.Seq[*cri.Image], error) {
	if err := s.checkHandler("filter.image.runtime_handler", f.GetImage().GetRuntimeHandler()); err != nil {
		return nil, err
	}
	var all []store.Image
	if ref := f.GetImage().GetImage(); ref != "" {
		img, err := s.findImage(ctx, ref)
		switch {
		case err == nil:
			all = append(all, img)
		case !errdefs.IsNotFound(err):
			return nil, err
		}
	} else {
		var err error
		if all, err = s.cfg.Images.List(ctx); err != nil {
			return nil, err
		}
	}
	return func(yield func(*cri.Image) bool) {
		for _, img := range all {
			if !yield(toImage(img)) {
				return
			}
		}
	}, nil
}

// ImageStatus tells what is known of an image; one that is not there is no error (ImageStatusResponse.image is nil).
func (s *Server) ImageStatus(ctx context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	ref, err := s.imageName(req.GetImage())
	if err != nil {
		return nil, err
	}
	img, err := s.findImage(ctx, ref)
	if errdefs.IsNotFound(err) {
		return &cri.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &cri.ImageStatusResponse{Image: toImage(img)}
	if req.GetVerbose() {
		resp.Info, err = jsonInfo(map[string]any{"info": map[string]any{"imageSpec": map[string]any{"config": img.Config}, "chainID": img.ChainID}})
		if err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// PullImage pulls an image from its registry.
func (s *Server) PullImage(ctx context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	ref, err := s.imageName(req.GetImage())
	if err != nil {
		return nil, err
	}
	pull := image.PullRequest{Ref: ref}
	if a := req.GetAuth(); a != nil {
		pull.Auth = &registry.Auth{Username: a.GetUsername(), Password: a.GetPassword(), Auth: a.GetAuth(),
			IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(), ServerAddress: a.GetServerAddress()}
	}
	img, err := s.cfg.Images.Pull(ctx, pull)
	if err != nil {
		return nil, err
	}
	return &cri.PullImageResponse{ImageRef: string(img.ID)}, nil
}

// RemoveImage removes an image; one that is not there is removed.
func (s *Server) RemoveImage(ctx context.Context, req *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	ref, err := s.imageName(req.GetImage())
	if err != nil {
		return nil, err
	}
	img, err := s.findImage(ctx, ref)
	switch {
	case err == nil:
		ref = string(img.ID)
	case !errdefs.IsNotFound(err):
		return nil, err
	}
	if err := s.cfg.Images.Remove(ctx, ref); err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &cri.RemoveImageResponse{}, nil
}

// ImageFsInfo tells how much the images take, and how much containers have written over them.
func (s *Server) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	mountpoint, used, inodes, err := s.cfg.Images.FsInfo(ctx)
	if err != nil {
		return nil, err
	}
	images := &cri.FilesystemUsage{Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: mountpoint},
		UsedBytes: &cri.UInt64Value{Value: used}, InodesUsed: &cri.UInt64Value{Value: inodes}}
	containers := s.stats.Written(func(yield func(id, dir string) bool) {
		for _, rec := range s.containers.List() {
			if !yield(string(rec.ID), s.folders.Written(rec.ID)) {
				return
			}
		}
	}, mountpoint)
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{images}, ContainerFilesystems: []*cri.FilesystemUsage{containers}}, nil
}

// idPrefix is the begin of an image's id, as people type it and crictl passes it on.
var idPrefix = regexp.MustCompile(`^(sha256:)?[0-9a-f]{4,63}$`)

// findImage finds an image by a name, or by an id or the begin of one. A name goes first: it may look like an id.
func (s *Server) findImage(ctx context.Context, ref string) (store.Image, error) {
	img, err := s.cfg.Images.Get(ctx, ref)
	if err == nil || !idPrefix.MatchString(ref) {
		return img, err
	}
	all, listErr := s.cfg.Images.List(ctx)
	if listErr != nil {
		return store.Image{}, listErr
	}
	var found []store.Image
	for _, img := range all {
		if strings.HasPrefix(strings.TrimPrefix(string(img.ID), "sha256:"), strings.TrimPrefix(ref, "sha256:")) {
			found = append(found, img)
		}
	}
	switch len(found) {
	case 0:
		return store.Image{}, fmt.Errorf("image %s: %w", ref, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return store.Image{}, fmt.Errorf("image id %q is not unique: %d begin with it: %w", ref, len(found), errdefs.ErrInvalidArgument)
}

func (s *Server) imageName(spec *cri.ImageSpec) (string, error) {
	if spec.GetImage() == "" {
		return "", fmt.Errorf("image.image is empty; name the image: %w", errdefs.ErrInvalidArgument)
	}
	return spec.GetImage(), s.checkHandler("image.runtime_handler", spec.GetRuntimeHandler())
}

func toImage(img store.Image) *cri.Image {
	out := &cri.Image{Id: string(img.ID), RepoTags: img.RepoTags, RepoDigests: img.RepoDigests, Size: img.Size, Pinned: img.Pinned, Spec: &cri.ImageSpec{Image: string(img.ID)}}
	user, _, _ := strings.Cut(img.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &cri.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}
