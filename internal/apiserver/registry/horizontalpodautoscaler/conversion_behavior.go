package horizontalpodautoscaler

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

// carriedBehavior is a behavior as its annotation has it: the same, with the names of Go's fields.
type carriedBehavior struct{ ScaleUp, ScaleDown *carriedRules }

type carriedRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []carriedPolicy
	Tolerance                  *resource.Quantity
}

type carriedPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func carryBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) carriedBehavior {
	return carriedBehavior{carryRules(b.ScaleUp), carryRules(b.ScaleDown)}
}

func carryRules(r *autoscalingv2.HPAScalingRules) *carriedRules {
	if r == nil {
		return nil
	}
	out := &carriedRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, carriedPolicy(p))
	}
	return out
}

func (b carriedBehavior) behavior() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: b.ScaleUp.rules(), ScaleDown: b.ScaleDown.rules()}
}

func (r *carriedRules) rules() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
	}
	return out
}
