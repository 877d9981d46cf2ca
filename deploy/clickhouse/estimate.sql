-- What queries of this folder have in common: the number of distinct flows that united registers stand for.
--
-- Ertl's improved raw estimator (2017, algorithm 6), as flowgauge's own: both agree to the last digits.
CREATE FUNCTION IF NOT EXISTS flowgauge_sigma AS (zeros) ->
    zeros + arraySum(k -> pow(zeros, pow(2, k)) * pow(2, k - 1), range(1, 64));
CREATE FUNCTION IF NOT EXISTS flowgauge_tau AS (below) ->
    if(below = 0 OR below = 1, 0, (1 - below - arraySum(k -> pow(1 - pow(below, pow(2, -k)), 2) * pow(2, -k), range(1, 64))) / 3);
-- Levels go up to 33 - log2(registers).
CREATE FUNCTION IF NOT EXISTS flowgauge_last AS (registers) -> toUInt8(33 - log2(length(registers)));
CREATE FUNCTION IF NOT EXISTS flowgauge_distinct AS (registers) ->
    if(countEqual(registers, 0) = length(registers), 0, length(registers) * length(registers) / (2 * ln(2) * (
        length(registers) * flowgauge_tau(1 - countEqual(registers, flowgauge_last(registers)) / length(registers))
            * pow(2, 1 - flowgauge_last(registers))
        + arraySum(k -> countEqual(registers, toUInt8(k)) * pow(2, -k), range(1, flowgauge_last(registers)))
        + length(registers) * flowgauge_sigma(countEqual(registers, 0) / length(registers)))));
-- Half of the 95 % interval, as a share: HyperLogLog's standard error, a little wider than flowgauge's own.
CREATE FUNCTION IF NOT EXISTS flowgauge_error AS (registers) -> 1.96 * 1.04 / sqrt(length(registers));
