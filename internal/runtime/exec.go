package runtime

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container to its end. A time-out of 0, or less, is none; 16 MiB of each stream are kept, and of both
// together what a message holds.
func (s *Server) ExecSync(ctx context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	res, err := s.streams.Run(ctx, id, req.GetCmd(), seconds(req.GetTimeout()))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, res.Release) // the call's context ends when the answer is on its way
	return &cri.ExecSyncResponse{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: int32(res.Code)}, nil
}

// Exec prepares a URL at which a command's streams are served, once.
func (s *Server) Exec(_ context.Context, req *cri.ExecRequest) (*cri.ExecResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := checkStreams(req.GetTty(), req.GetStdin(), req.GetStdout(), req.GetStderr()); err != nil {
		return nil, err
	}
	// What can be refused is refused now, where the client gets a code.
	if _, err := s.life.Process(id, req.GetCmd(), req.GetTty()); err != nil {
		return nil, err
	}
	if err := s.streams.Room(id); err != nil {
		return nil, err
	}
	url, err := s.streaming.Exec(&cri.ExecRequest{ContainerId: string(id), Cmd: req.GetCmd(), Tty: req.GetTty(), Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr()})
	if err != nil {
		return nil, err
	}
	return &cri.ExecResponse{Url: url}, nil
}

// Attach prepares a URL at which a running container's streams are served, once: what it prints from this call on.
func (s *Server) Attach(ctx context.Context, req *cri.AttachRequest) (*cri.AttachResponse, error) {
	id, err := s.containerID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := checkStreams(req.GetTty(), req.GetStdin(), req.GetStdout(), req.GetStderr()); err != nil {
		return nil, err
	}
	attach := &cri.AttachRequest{ContainerId: string(id), Tty: req.GetTty(), Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr()}
	place, err := s.streams.Hold(ctx, attach)
	if err != nil {
		return nil, err
	}
	url, err := s.streaming.Attach(attach, place.Serve)
	if err != nil {
		place.Drop()
		return nil, err
	}
	return &cri.AttachResponse{Url: url}, nil
}

// checkStreams holds the rules of ExecRequest and AttachRequest.
func checkStreams(tty, stdin, stdout, stderr bool) error {
	switch {
	case tty && stderr:
		return fmt.Errorf("tty and stderr are both set; a terminal has one output, stdout: %w", errdefs.ErrInvalidArgument)
	case !stdin && !stdout && !stderr:
		return fmt.Errorf("none of stdin, stdout and stderr is set; one is needed: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}
