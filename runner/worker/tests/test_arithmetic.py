"""The yardstick's arithmetic and the float64 reference's, against the same done by hand."""

import pytest
import torch

from modelfarm_worker.precision import matmul_precision, split_bfloat16
from modelfarm_worker.reference import float64_throughout


def rounded(value):
    return value.bfloat16().float()


@pytest.fixture
def operands():
    torch.manual_seed(0)
    return torch.randn(6, 32), torch.randn(32, 5), torch.randn(5)


def test_medium_rounds_the_operands_and_nothing_else(operands):
    left, right, bias = operands
    expected = (rounded(left).double() @ rounded(right).double() + bias.double()).float()
    with matmul_precision("medium"):
        actual = torch.addmm(bias, left, right)
        linear = torch.nn.functional.linear(left, right.T, bias)
        product = left @ right
    assert torch.allclose(actual, expected, atol=1e-5, rtol=0)
    assert torch.allclose(linear, expected, atol=1e-5, rtol=0)
    assert torch.allclose(product, expected - bias, atol=1e-5, rtol=0)
    assert (actual - torch.addmm(bias, left, right)).abs().max() > 1e-3


def test_high_keeps_sixteen_bits(operands):
    left, right, bias = operands
    exact = left.double() @ right.double() + bias.double()
    with matmul_precision("high"):
        actual = torch.addmm(bias, left, right)
    with matmul_precision("medium"):
        rough = torch.addmm(bias, left, right)
    assert (actual - exact).abs().max() < 2e-3 * (rough - exact).abs().max() * 10
    assert (actual - exact).abs().max() < 5e-4


def test_addmm_scales(operands):
    left, right, bias = operands
    with matmul_precision("medium"):
        actual = torch.addmm(bias, left, right, beta=0.5, alpha=2.0)
    assert torch.allclose(actual, 0.5 * bias + 2.0 * (rounded(left) @ rounded(right)), atol=1e-5)


@pytest.mark.parametrize("precision", ["medium", "high"])
def test_convolution_and_its_gradients(precision):
    torch.manual_seed(0)
    image, weight, bias = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    wide = [value.double().requires_grad_() for value in (rounded(image), rounded(weight), bias)]
    exact = [value.double().requires_grad_() for value in (image, weight, bias)]
    narrow = [value.clone().requires_grad_() for value in (image, weight, bias)]
    upstream = rounded(torch.randn(2, 4, 8, 8))
    expected = wide if precision == "medium" else exact
    result = torch.nn.functional.conv2d(*expected, padding=1)
    result.backward(upstream.double())
    with matmul_precision(precision):
        actual = torch.nn.functional.conv2d(*narrow, padding=1)
        actual.backward(upstream)
    tolerance = 1e-4 if precision == "medium" else 2e-3
    assert torch.allclose(actual.double(), result, atol=tolerance, rtol=0)
    for found, known in zip(narrow, expected, strict=True):
        assert torch.allclose(found.grad.double(), known.grad, atol=tolerance * 4, rtol=0)


def test_attention_is_rounded_too():
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 8, 16) for _ in range(3))
    with matmul_precision("medium"):
        actual = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    plain = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    assert 1e-4 < (actual - plain).abs().max() < 0.1


def test_highest_changes_nothing(operands):
    left, right, _ = operands
    with matmul_precision("highest"):
        actual = left @ right
    assert torch.equal(actual, left @ right)


def test_split_is_a_sum_of_bfloat16_parts():
    value = torch.randn(1000)
    high, low = split_bfloat16(value, 2)
    assert torch.equal(high, rounded(high))
    assert torch.equal(low, rounded(low))
    assert ((high + low - value).abs() <= value.abs() * 2**-16).all()


def test_unknown_precision_is_an_error():
    with pytest.raises(ValueError, match="expected precision"), matmul_precision("huge"):
        pass


def test_float64_also_where_the_code_asks_for_float32():
    value = torch.randn(64, dtype=torch.float64)
    with float64_throughout():
        widened = value.to(torch.float32)
        softmax = torch.nn.functional.softmax(value, dim=-1, dtype=torch.float32)
        made = torch.arange(4, dtype=torch.float32) + torch.ones(4)
        cast = value.float()
    assert {part.dtype for part in (widened, softmax, made, cast)} == {torch.float64}
    assert torch.equal(softmax, torch.softmax(value, dim=-1))
    assert torch.ones(1).dtype == torch.float32
