package runtime

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image"
)

// ListImages lists the images, or the one that the filter names.
func (s *Server) ListImages(ctx context.Context, req *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	resp := &cri.ListImagesResponse{}
	if ref := req.GetFilter().GetImage().GetImage(); ref != "" {
		img, err := s.cfg.Images.Get(ctx, ref)
		if errdefs.IsNotFound(err) {
			return resp, nil
		}
		if err != nil {
			return nil, err
		}
		resp.Images = []*cri.Image{toImage(img)}
		return resp, nil
	}
	all, err := s.cfg.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		resp.Images = append(resp.Images, toImage(img))
	}
	return resp, nil
}

// ImageStatus tells what is known of an image; one that is not there is no error (ImageStatusResponse.image is nil).
func (s *Server) ImageStatus(ctx context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	ref, err := imageName(req.GetImage())
	if err != nil {
		return nil, err
	}
	img, err := s.cfg.Images.Get(ctx, ref)
	if errdefs.IsNotFound(err) {
		return &cri.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &cri.ImageStatusResponse{Image: toImage(img)}, nil
}

// PullImage pulls an image from its registry.
func (s *Server) PullImage(ctx context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	ref, err := imageName(req.GetImage())
	if err != nil {
		return nil, err
	}
	pull := image.PullRequest{Ref: ref}
	if a := req.GetAuth(); a != nil {
		pull.Auth = &image.Auth{Username: a.GetUsername(), Password: a.GetPassword(), Auth: a.GetAuth(),
			IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(), ServerAddress: a.GetServerAddress()}
	}
	img, err := s.cfg.Images.Pull(ctx, pull)
	if err != nil {
		return nil, err
	}
	return &cri.PullImageResponse{ImageRef: img.ID}, nil
}

// RemoveImage removes an image; one that is not there is removed.
func (s *Server) RemoveImage(ctx context.Context, req *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	ref, err := imageName(req.GetImage())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Images.Remove(ctx, ref); err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	return &cri.RemoveImageResponse{}, nil
}

// ImageFsInfo tells how much the images take.
func (s *Server) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	mountpoint, used, inodes, err := s.cfg.Images.FsInfo(ctx)
	if err != nil {
		return nil, err
	}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: mountpoint},
		UsedBytes: &cri.UInt64Value{Value: used}, InodesUsed: &cri.UInt64Value{Value: inodes},
	}}}, nil
}

func imageName(spec *cri.ImageSpec) (string, error) {
	if spec.GetImage() == "" {
		return "", fmt.Errorf("image.image is empty; name the image: %w", errdefs.ErrInvalidArgument)
	}
	return spec.GetImage(), nil
}

func toImage(img image.Image) *cri.Image {
	out := &cri.Image{Id: img.ID, RepoTags: img.RepoTags, RepoDigests: img.RepoDigests, Size: img.Size, Pinned: img.Pinned, Spec: &cri.ImageSpec{Image: img.ID}}
	user, _, _ := strings.Cut(img.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &cri.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}
