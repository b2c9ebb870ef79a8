package cli

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// RPCError says what a runtime's error means to a person: the message, and the code only where it adds something. That something is unavailable a runtime says
// of others as well, such as a registry: then it is still connected.
func RPCError(conn grpc.ClientConnInterface, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if c, ok := conn.(interface{ GetState() connectivity.State }); s.Code() == codes.Unavailable && ok && c.GetState() != connectivity.Ready {
		return fmt.Errorf("the runtime does not answer: is 'monopod up' running? (%s)", s.Message())
	}
	return errors.New(s.Message())
}
