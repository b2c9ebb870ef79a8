package kinds

import "context"

// image is the content of an image. The runtime mounts it, where a container has it.
type image struct{ ofOthers }

// Setup implements Kind.
func (image) Setup(context.Context, *Volume) error { return nil }

// Mount implements Kind. Nobody can write to an image.
func (image) Mount(v *Volume) (Source, error) {
	return Source{Image: v.Spec.Image.Reference, ReadOnly: true}, nil
}

// Facts implements Kind.
func (image) Facts() Facts { return Facts{} }
