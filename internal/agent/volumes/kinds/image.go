package kinds

import "context"

// image is the content of an image. The runtime mounts it, where a container has it.
type image struct{}

// Setup implements Kind.
func (image) Setup(context.Context, *Volume) error { return nil }

// Source implements Kind.
func (image) Source(*Volume) string { return "" }

// Facts implements Kind.
func (image) Facts() Facts { return Facts{} }
