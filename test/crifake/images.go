package crifake

import (
	"context"
	"maps"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages implements CRI.
func (r *Runtime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &cri.ListImagesResponse{}
	for _, ref := range slices.Sorted(maps.Keys(r.images)) {
		resp.Images = append(resp.Images, &cri.Image{Id: ref, RepoTags: []string{"docker.io/library/" + ref + ":latest"}, Size: 1})
	}
	return resp, nil
}

// RemoveImage implements CRI: it is idempotent.
func (r *Runtime) RemoveImage(_ context.Context, req *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin("RemoveImage", req.Image.Image); err != nil {
		return nil, err
	}
	delete(r.images, req.Image.Image)
	return &cri.RemoveImageResponse{}, nil
}

// ImageFsInfo implements CRI: the images are on the file system of the socket, and take a byte each.
func (r *Runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: r.Socket}, UsedBytes: &cri.UInt64Value{Value: uint64(len(r.images))},
	}}}, nil
}
