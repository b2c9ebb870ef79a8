// Package imageload is a gRPC service beside CRI's, on the same socket: it loads images from an archive, which CRI cannot.
//
//	service monopod.image.v1.ImageLoader {
//	  // Load reads the bytes of an archive (OCI image layout or docker-archive, gzip or not), in order, and answers with the
//	  // names of the images in it.
//	  rpc Load(stream google.protobuf.BytesValue) returns (google.protobuf.ListValue);
//	}
//
// The description is written by hand: the messages are protobuf's own, so that nothing needs to be generated.
package imageload

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	serviceName = "monopod.image.v1.ImageLoader"
	methodName  = "Load"
)

// chunk is how many bytes of an archive go into one message.
const chunk = 256 << 10

// Loader loads archives.
type Loader interface {
	Load(ctx context.Context, r io.Reader) (names []string, err error)
}

// Register adds the service to a server.
func Register(server *grpc.Server, loader Loader) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName, HandlerType: (*Loader)(nil),
		Streams: []grpc.StreamDesc{{StreamName: methodName, ClientStreams: true, Handler: serve}},
	}, loader)
}

func serve(srv any, stream grpc.ServerStream) error {
	r := &reader{next: func() ([]byte, error) {
		var m wrapperspb.BytesValue
		err := stream.RecvMsg(&m)
		return m.GetValue(), err
	}}
	names, err := srv.(Loader).Load(stream.Context(), r) // HandlerType is checked at registration
	if err != nil {
		return err
	}
	list := &structpb.ListValue{}
	for _, n := range names {
		list.Values = append(list.Values, structpb.NewStringValue(n))
	}
	return stream.SendMsg(list)
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

// Load sends an archive to the runtime and returns the names of the images in it.
func Load(ctx context.Context, conn grpc.ClientConnInterface, archive io.Reader) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: methodName, ClientStreams: true}, "/"+serviceName+"/"+methodName)
	if err != nil {
		return nil, err
	}
	if err := send(stream, archive); err != nil {
		return nil, err
	}
	var list structpb.ListValue
	if err := stream.RecvMsg(&list); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range list.GetValues() {
		names = append(names, v.GetStringValue())
	}
	return names, nil
}

// send sends the archive. A server that has answered already, with an error, is asked for it by the caller.
func send(stream grpc.ClientStream, archive io.Reader) error {
	buf := make([]byte, chunk)
	for {
		n, err := archive.Read(buf)
		if n > 0 {
			if serr := stream.SendMsg(wrapperspb.Bytes(append([]byte(nil), buf[:n]...))); serr != nil {
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
