package imageservice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const serviceName = "monopod.image.v1.Images"

// Register adds the service to a server.
func Register(server *grpc.Server, service Service) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName, HandlerType: (*Service)(nil),
		Methods: []grpc.MethodDesc{
			unary("List", Service.List), unary("Inspect", Service.Inspect), unary("Remove", Service.Remove), unary("Prune", Service.Prune),
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Pull", ServerStreams: true, Handler: servePull},
			{StreamName: "Load", ClientStreams: true, Handler: serveLoad},
			{StreamName: "Save", ServerStreams: true, Handler: serveSave},
		},
	}, service)
}

// unary is an RPC of one request and one answer.
func unary[Req, Resp any](name string, call func(Service, context.Context, Req) (Resp, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, read func(any) error, edge grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		if err := read(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) {
			var req Req
			if err := unpack(in.(*wrapperspb.BytesValue), &req); err != nil {
				return nil, err
			}
			resp, err := call(srv.(Service), ctx, req) // HandlerType is checked at registration
			if err != nil {
				return nil, err
			}
			return pack(resp)
		}
		if edge == nil {
			return handle(ctx, in)
		}
		return edge(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: path(name)}, handle)
	}}
}

func path(method string) string { return "/" + serviceName + "/" + method }

func pack(v any) (*wrapperspb.BytesValue, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return wrapperspb.Bytes(raw), nil
}

func unpack(m *wrapperspb.BytesValue, to any) error {
	if err := json.Unmarshal(m.GetValue(), to); err != nil {
		return fmt.Errorf("the message is no JSON of %T: %w: %w", to, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// first reads the message that a stream begins with.
func first(stream grpc.ServerStream, to any) error {
	var m wrapperspb.BytesValue
	if err := stream.RecvMsg(&m); err != nil {
		return err
	}
	return unpack(&m, to)
}

func servePull(srv any, stream grpc.ServerStream) error {
	var req PullRequest
	if err := first(stream, &req); err != nil {
		return err
	}
	send := func(e PullEvent) error {
		m, err := pack(e)
		if err != nil {
			return err
		}
		return stream.SendMsg(m)
	}
	var failed error // of the client: its context ends the pull
	img, err := srv.(Service).Pull(stream.Context(), req, func(layers []LayerProgress) {
		if failed == nil {
			failed = send(PullEvent{Layers: layers})
		}
	})
	if err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return send(PullEvent{Image: &img})
}

func serveLoad(srv any, stream grpc.ServerStream) error {
	var req LoadRequest
	if err := first(stream, &req); err != nil {
		return err
	}
	archive := &reader{next: func() ([]byte, error) {
		var m wrapperspb.BytesValue
		err := stream.RecvMsg(&m)
		return m.GetValue(), err
	}}
	loaded, err := srv.(Service).Load(stream.Context(), req, archive)
	if err != nil {
		return err
	}
	m, err := pack(loaded)
	if err != nil {
		return err
	}
	return stream.SendMsg(m)
}

func serveSave(srv any, stream grpc.ServerStream) error {
	var req SaveRequest
	if err := first(stream, &req); err != nil {
		return err
	}
	w := &writer{send: func(p []byte) error { return stream.SendMsg(wrapperspb.Bytes(p)) }}
	if err := srv.(Service).Save(stream.Context(), req, w); err != nil {
		return err
	}
	return w.flush()
}

// reader makes a stream of messages a stream of bytes.
type reader struct {
	next func() ([]byte, error) // io.EOF at the end
	rest []byte
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		b, err := r.next()
		if err != nil {
			return 0, err
		}
		r.rest = b
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// writer makes a stream of bytes a stream of messages of some size.
type writer struct {
	send func([]byte) error
	buf  []byte
}

func (w *writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.buf == nil {
			w.buf = make([]byte, 0, chunk)
		}
		k := min(len(p), chunk-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == chunk {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// flush sends what is left. gRPC may hold on to the bytes, so each message has its own.
func (w *writer) flush() error {
	p := w.buf
	w.buf = nil
	if len(p) == 0 {
		return nil
	}
	return w.send(p)
}

var _ io.Writer = (*writer)(nil)
