package plan

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// keptVersion is the format of a verdict that is kept in a file: one JSON object, keptVerdict. A later version reads all earlier ones.
const keptVersion = 1

// keptVerdict is a verdict in a file.
type keptVerdict struct {
	Version   int              `json:"version"`
	Phase     v1.PodPhase      `json:"phase"`
	Reason    string           `json:"reason,omitempty"`
	Message   string           `json:"message,omitempty"`
	Grace     *time.Duration   `json:"graceNanoseconds,omitempty"`
	Since     time.Time        `json:"since"`
	Condition *v1.PodCondition `json:"condition,omitempty"`
}

// Encode is the verdict as it is kept for an agent that is started later.
func (v *Verdict) Encode() ([]byte, error) {
	return json.Marshal(keptVerdict{keptVersion, v.Phase, v.Reason, v.Message, v.Grace, v.Since, v.Condition})
}

// DecodeVerdict reads a verdict that was kept.
func DecodeVerdict(raw []byte) (*Verdict, error) {
	var k keptVerdict
	if err := json.Unmarshal(raw, &k); err != nil {
		return nil, err
	}
	if k.Version < 1 || k.Version > keptVersion {
		return nil, fmt.Errorf("it has version %d, this monopod knows 1 to %d", k.Version, keptVersion)
	}
	if !final(k.Phase) {
		return nil, fmt.Errorf("its phase is %q; a pod ends as %s or %s", k.Phase, v1.PodSucceeded, v1.PodFailed)
	}
	return &Verdict{Phase: k.Phase, Reason: k.Reason, Message: k.Message, Grace: k.Grace, Since: k.Since, Condition: k.Condition}, nil
}
