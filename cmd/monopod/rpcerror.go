package main

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rpcError says what a runtime's error means to a person: the message, and the code only where it adds something.
func rpcError(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if s.Code() == codes.Unavailable {
		return fmt.Errorf("the runtime does not answer: is 'monopod up' running? (%s)", s.Message())
	}
	return fmt.Errorf("%s", s.Message())
}
