package records

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestProtoSurvivesJSON(t *testing.T) {
	in := Proto[*cri.ContainerConfig]{&cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "a", Attempt: 3},
		Envs: []*cri.KeyValue{{Key: "K", Value: []byte{0xff, 0}}}}}
	in.Message.ProtoReflect().SetUnknown([]byte{0xc2, 0x3e, 1, 'x'}) // field 1000 of a newer client
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Proto[*cri.ContainerConfig]
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(in.Message, out.Message) {
		t.Errorf("read back %v, want %v", out.Message, in.Message)
	}
}
