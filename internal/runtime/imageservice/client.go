package imageservice

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Client calls a runtime's service. Its errors are gRPC's.
type Client struct{ Conn grpc.ClientConnInterface }

func call[Resp any](ctx context.Context, c Client, method string, req any) (resp Resp, err error) {
	in, err := pack(req)
	if err != nil {
		return resp, err
	}
	var out wrapperspb.BytesValue
	// A list of very many images may be large.
	if err := c.Conn.Invoke(ctx, path(method), in, &out, grpc.MaxCallRecvMsgSize(64<<20)); err != nil {
		return resp, err
	}
	return resp, unpack(&out, &resp)
}

// List returns all images, by id.
func (c Client) List(ctx context.Context) ([]Image, error) {
	return call[[]Image](ctx, c, "List", ListRequest{})
}

// Inspect returns what is known of an image.
func (c Client) Inspect(ctx context.Context, req InspectRequest) (Details, error) {
	return call[Details](ctx, c, "Inspect", req)
}

// Remove removes images.
func (c Client) Remove(ctx context.Context, req RemoveRequest) (Removed, error) {
	return call[Removed](ctx, c, "Remove", req)
}

// Prune removes images that no container uses.
func (c Client) Prune(ctx context.Context, req PruneRequest) (Pruned, error) {
	return call[Pruned](ctx, c, "Prune", req)
}

// begin opens a stream and sends its first message.
func (c Client) begin(ctx context.Context, desc grpc.StreamDesc, req any) (grpc.ClientStream, error) {
	in, err := pack(req)
	if err != nil {
		return nil, err
	}
	stream, err := c.Conn.NewStream(ctx, &desc, path(desc.StreamName))
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(in); err != nil && !errors.Is(err, io.EOF) { // the server has answered already: see RecvMsg
		return nil, err
	}
	return stream, nil
}

// Pull pulls an image, and tells how far it is.
func (c Client) Pull(ctx context.Context, req PullRequest, progress func([]LayerProgress)) (Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.begin(ctx, grpc.StreamDesc{StreamName: "Pull", ServerStreams: true}, req)
	if err != nil {
		return Image{}, err
	}
	if err := stream.CloseSend(); err != nil {
		return Image{}, err
	}
	for {
		var m wrapperspb.BytesValue
		if err := stream.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the runtime has ended the pull without an answer")
			}
			return Image{}, err
		}
		var e PullEvent
		if err := unpack(&m, &e); err != nil {
			return Image{}, err
		}
		if e.Image != nil {
			return *e.Image, nil
		}
		progress(e.Layers)
	}
}

// Load sends an archive to the runtime and returns the images in it.
func (c Client) Load(ctx context.Context, req LoadRequest, archive io.Reader) ([]Loaded, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.begin(ctx, grpc.StreamDesc{StreamName: "Load", ClientStreams: true}, req)
	if err != nil {
		return nil, err
	}
	if err := send(stream, archive); err != nil {
		return nil, err
	}
	var m wrapperspb.BytesValue
	if err := stream.RecvMsg(&m); err != nil {
		return nil, err
	}
	var loaded []Loaded
	return loaded, unpack(&m, &loaded)
}

// send sends the archive. A server that has answered already, with an error, is asked for it by the caller.
func send(stream grpc.ClientStream, archive io.Reader) error {
	for {
		buf := make([]byte, chunk)
		n, err := archive.Read(buf)
		if n > 0 {
			if serr := stream.SendMsg(wrapperspb.Bytes(buf[:n])); serr != nil {
				if errors.Is(serr, io.EOF) {
					return nil
				}
				return serr
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.CloseSend()
		}
		if err != nil {
			return err
		}
	}
}

// Save writes an archive of the images. What is written before an error is of no use.
func (c Client) Save(ctx context.Context, req SaveRequest, archive io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.begin(ctx, grpc.StreamDesc{StreamName: "Save", ServerStreams: true}, req)
	if err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var m wrapperspb.BytesValue
		err := stream.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := archive.Write(m.GetValue()); err != nil {
			return err
		}
	}
}
